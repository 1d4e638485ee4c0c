"""Retrieval: BM25 by Lucene, vector search, snippets. Java starts when an index is first needed."""
