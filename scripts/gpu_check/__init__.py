"""`scripts/gpu-check`: compares a GPU's results with the CPU's, then measures its speed; one file per group of checks.

It is run from a checkout and is not part of the installed package.
"""
