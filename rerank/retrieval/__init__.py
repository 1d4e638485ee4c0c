"""Retrieval: the BM25 first stage, by Pyserini and Lucene.

Knows nothing of experiments or models; Java starts, and Pyserini is imported, when an index is first needed.
"""

from rerank.retrieval.bm25 import build_index, choose_index, retrieve, search
from rerank.retrieval.indexed_texts import with_indexed_texts

__all__ = ["build_index", "choose_index", "retrieve", "search", "with_indexed_texts"]
