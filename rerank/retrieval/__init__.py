"""Retrieval: BM25 by Lucene, search among vectors, snippets. Java starts when an index is first needed."""
