"""Benchmarks of rerank beside other libraries: `python -m scripts.benchmarks training|scoring|losses|letor`.

They are run from a checkout and are not part of the installed package.
"""
