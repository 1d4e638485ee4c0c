"""The vectors of candidates by a bi-encoder: the inputs of a query adapter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rerank.data.embeddings import EmbeddingStore
from rerank.data.types import Candidates
from rerank.models.bi_encoder import BiEncoder
from rerank.models.query_adapter import VectorPairs, compared


@dataclass(frozen=True)
class CandidateVectors:
    """The vectors of queries, query_id to (dimensions,), and of the documents, by a bi-encoder."""

    encoder: BiEncoder
    documents: EmbeddingStore
    queries: Mapping[str, np.ndarray]

    def of(self, lists: Sequence[Candidates]) -> VectorPairs:
        """The vectors of the lists' queries, and of the passages of their documents."""
        doc_ids = [doc_id for found in lists for doc_id in found.doc_ids]
        of_list = np.repeat(np.arange(len(lists)), [len(found.doc_ids) for found in lists])
        known = self.documents.numbers(doc_ids)
        places = np.array([place for place, doc_id in enumerate(doc_ids) if doc_id in known], dtype=np.int64)
        numbers = np.array([known[doc_ids[place]] for place in places], dtype=np.int64)
        begins, ends = self.documents.offsets[numbers], self.documents.offsets[numbers + 1]
        rows = [row for begin, end in zip(begins, ends, strict=True) for row in range(begin, end)]
        documents = np.repeat(places, ends - begins)
        passages = np.take(self.documents.vectors, np.array(rows, dtype=np.int64), axis=0)
        queries = np.stack([self.queries[found.query_id] for found in lists])
        return VectorPairs(
            compared(torch.from_numpy(queries), self.encoder),
            compared(torch.from_numpy(passages), self.encoder),
            torch.from_numpy(of_list[documents]),
            torch.from_numpy(documents),
            len(doc_ids),
        )
