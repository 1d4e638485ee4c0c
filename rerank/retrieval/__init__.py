"""Retrieval: BM25 by Pyserini and Lucene, exact search among vectors, snippets.

Knows nothing of experiments or models; Java starts, and Pyserini is imported, when an index is first needed.
"""
