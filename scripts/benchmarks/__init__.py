"""Benchmarks of rerank beside other libraries, and of a GPU without one: `python -m scripts.benchmarks --help`.

They are run from a checkout and are not part of the installed package.
"""
