"""The peer of the search benchmark: what one would write by hand with bm25s, usearch and sentence-transformers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from rerank.data.collections import open_collection

DEPTH = 1000


def open_peer(collection: Path, vectors: np.ndarray, encoder: str) -> Callable[[str], list[str]]:
    """A function that finds ten documents for a query; vectors: (documents, dimensions), one for each document."""
    import bm25s  # no extra of rerank has these
    import Stemmer
    from sentence_transformers import SentenceTransformer
    from usearch.index import MetricKind, search

    documents = list(open_collection(str(collection)).documents())
    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25(k1=1.2, b=0.75)
    tokens = bm25s.tokenize([of.text for of in documents], stopwords="en", stemmer=stemmer, show_progress=False)
    index.index(tokens, show_progress=False)
    model = SentenceTransformer(encoder, device="cpu")

    def find(query: str) -> list[str]:
        words = bm25s.tokenize(query, stopwords="en", stemmer=stemmer, show_progress=False)
        rows, scores = index.retrieve(words, k=DEPTH, show_progress=False)
        vector = model.encode(query, show_progress_bar=False)
        found = search(vectors, vector, DEPTH, MetricKind.IP, exact=True)
        fused = np.zeros(len(documents))
        fused[rows[0]] += scores[0] / (scores[0].max() or 1)
        fused[found.keys] += 1 - found.distances
        return [documents[row].doc_id for row in np.argsort(-fused)[:10]]

    return find
