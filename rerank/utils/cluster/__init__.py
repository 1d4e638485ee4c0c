"""Jobs on a Ray cluster.

Ray finds a place for each worker, assigns the GPUs and notices nodes that are lost; the jobs run in the processes of
`rerank.utils.workers`, as on one machine. Ray is imported only by a process of its own, the driver, and on the nodes.
"""
