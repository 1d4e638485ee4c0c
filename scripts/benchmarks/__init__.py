"""Benchmarks of rerank beside other libraries: `python -m scripts.benchmarks --help`.

They are run from a checkout and are not part of the installed package.
"""
