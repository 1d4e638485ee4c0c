"""A query and a document -> passages that fit the encoder: [CLS] query [SEP] passage [SEP]."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from rerank.batches.batch import Packed, Pairs
from rerank.batches.pair_template import PairTemplate
from rerank.data.tokens import TokenStore


@dataclass(frozen=True)
class PassageBuilder:
    """Builds the packed inputs of (query_id, doc_id) pairs.

    A document is split into as few passages as fit the encoder's `max_length` together with the query, all of equal
    length to within one token (the paper's setting, after MacAvaney et al. 2019, CEDR). An empty document is one
    passage without tokens of its own. A query may take at most half of the encoder's room.
    """

    queries: dict[str, list[int]]
    documents: TokenStore
    template: PairTemplate
    max_length: int

    @property
    def room(self) -> int:
        """Tokens of a passage that are not special."""
        return self.max_length - len(self.template.prefix) - len(self.template.middle) - len(self.template.suffix)

    def query(self, query_id: str) -> list[int]:
        """The query's token ids, cut to half of the room."""
        return self.queries[query_id][: self.room // 2]

    def truncated_queries(self) -> int:
        """How many queries are longer than half of the room."""
        return sum(len(tokens) > self.room // 2 for tokens in self.queries.values())

    def bounds(self, query_id: str, doc_id: str) -> np.ndarray:
        """Where the document's passages begin and end, in its tokens: (passages + 1,)."""
        row = self.documents.rows[doc_id]
        length = int(self.documents.offsets[row + 1] - self.documents.offsets[row])
        passages = max(1, -(-length // (self.room - len(self.query(query_id)))))
        return np.arange(passages + 1) * length // passages

    def lengths(self, query_id: str, doc_id: str) -> np.ndarray:
        """Tokens of each passage, query and special tokens included: (passages,)."""
        return np.diff(self.bounds(query_id, doc_id)) + self.max_length - self.room + len(self.query(query_id))

    def __call__(self, pairs: Pairs) -> Packed:
        """The passages of these pairs, in their order."""
        head, between, tail = self.template.prefix, self.template.middle, self.template.suffix
        ids: list[np.ndarray] = []
        types: list[np.ndarray] = []
        offsets, documents = [0], []
        for number, (query_id, doc_id) in enumerate(pairs):
            query, tokens = self.query(query_id), self.documents[doc_id]
            bounds = self.bounds(query_id, doc_id)
            for begin, end in pairwise(bounds.tolist()):
                parts = (head, query, between, tokens[begin:end], tail)
                ids += [np.asarray(part, dtype=np.int64) for part in parts]
                if self.template.token_types is not None:
                    types.append(np.repeat(self.template.token_types, [len(part) for part in parts]))
                offsets.append(offsets[-1] + sum(len(part) for part in parts))
                documents.append(number)
        return Packed(
            torch.from_numpy(np.concatenate(ids)),
            torch.from_numpy(np.concatenate(types)) if types else None,
            torch.tensor(offsets),
            torch.tensor(documents),
        )
