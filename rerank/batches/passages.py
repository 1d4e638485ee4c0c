"""PassageBuilder: the passages of (query, document) pairs as an encoder reads them: [CLS] query [SEP] passage [SEP]."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from rerank.batches.batch import Packed, Pairs
from rerank.batches.pair_template import PairTemplate
from rerank.data.splitting import NOTHING_SHARED, Splitting
from rerank.data.tokens import TokenStore, tokenise
from rerank.utils.errors import UserError

QUERIES_AT_ONCE = 4096
"""Queries that are tokenised together: the tokenizer's own records of them take several KB each."""


class _Plan(NamedTuple):
    """Of each pair the document's row, the tokens of query and document, and the passages: (pairs,) int64 each."""

    rows: np.ndarray
    queries: np.ndarray
    lengths: np.ndarray
    passages: np.ndarray


@dataclass(frozen=True)
class PassageBuilder:
    """Builds the packed inputs of (query_id, doc_id) pairs.

    A document is split into as few passages as fit the encoder's `max_length` together with the query, all of equal
    length to within one token (the paper's setting, after MacAvaney et al. 2019, CEDR). An empty document is one
    passage without tokens of its own. A query is cut to half of a passage's tokens.

    queries: query_id to token ids, without special tokens; max_length: the tokens of a passage, special ones included;
    splitting: what the passages of a document share.
    """

    queries: dict[str, list[int]]
    documents: TokenStore
    template: PairTemplate
    max_length: int
    splitting: Splitting = NOTHING_SHARED

    @classmethod
    def build(
        cls,
        queries: dict[str, str],
        documents: TokenStore,
        tokenizer: Any,
        template: PairTemplate,
        max_length: int,
        splitting: Splitting = NOTHING_SHARED,
    ) -> "PassageBuilder":
        """Tokenises the queries, texts by query_id, for documents that the same tokenizer and template tokenised.

        Raises UserError if the template leaves no token for query and document, or if the tokens that passages share
        leave none for others beside a long query.
        """
        tokens: dict[str, list[int]] = {}
        query_ids = list(queries)
        for first in range(0, len(query_ids), QUERIES_AT_ONCE):
            some = query_ids[first : first + QUERIES_AT_ONCE]
            texts = [template.query_lead + queries[query_id] for query_id in some]
            tokens.update(zip(some, tokenise(texts, tokenizer), strict=True))
        builder = cls(tokens, documents, template, max_length, splitting)
        if builder.max_tokens < 2:
            raise UserError(
                f"--encoder.template: its {max_length - builder.max_tokens} tokens leave no tokens for a query and a "
                f"document in the encoder's {max_length}; take a shorter template or another encoder"
            )
        limit = builder.max_tokens - builder.max_tokens // 2  # that the longest query leaves
        if splitting.repeated >= limit:
            raise UserError(
                f"--encoder.passage-overlap {splitting.overlap} and --encoder.title-tokens {splitting.title}: expected "
                f"together less than {limit}, the tokens of a passage that a long query leaves"
            )
        return builder

    @property
    def max_tokens(self) -> int:
        """The tokens of a passage that are not special: query and text."""
        return self.max_length - len(self.template.prefix) - len(self.template.middle) - len(self.template.suffix)

    def query(self, query_id: str) -> list[int]:
        """The query's token ids, cut to half of `max_tokens`."""
        return self.queries[query_id][: self.max_tokens // 2]

    def truncated_queries(self) -> int:
        """The number of queries longer than half of `max_tokens`."""
        return sum(len(tokens) > self.max_tokens // 2 for tokens in self.queries.values())

    def split(self, query_id: str, doc_id: str) -> np.ndarray:
        """Splits the document: passage p is its tokens bounds[p, 0]:bounds[p, 1]; (passages, 2) bounds.

        Passages after the first begin with the title (see Splitting), which is not in the bounds.
        """
        row = self.documents.rows[doc_id]
        length = int(self.documents.offsets[row + 1] - self.documents.offsets[row])
        passages = self.splitting.passages(length, self.max_tokens - len(self.query(query_id)))
        return np.stack(self.splitting.span(length, passages, np.arange(passages)), axis=1)

    def sizes(self, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of each pair's longest passage, and of all its passages: (pairs,) int64 each."""
        plan = self._plan(pairs)
        around = self.max_length - self.max_tokens + plan.queries
        totals = self.splitting.total(plan.lengths, plan.passages)
        return -(-totals // plan.passages) + around, totals + plan.passages * around

    def __call__(self, pairs: Pairs) -> Packed:
        """The passages of these pairs, in their order."""
        self.documents.release()  # what earlier calls have read
        if self.template.after_query is not None or self.template.after_passage is not None:
            return self._merged(pairs)
        plan, template = self._plan(pairs), self.template
        documents = np.repeat(np.arange(len(pairs)), plan.passages)
        number = np.arange(len(documents)) - (plan.passages.cumsum() - plan.passages)[documents]
        length, passages = plan.lengths[documents], plan.passages[documents]
        begins, ends = self.splitting.span(length, passages, number)
        titles = np.where(number, self.splitting.title, 0)
        text_lengths = titles + ends - begins
        starts = {
            query_id: np.array([*template.prefix, *self.query(query_id), *template.middle])
            for query_id in dict.fromkeys(query_id for query_id, _ in pairs)
        }
        start_lengths = len(template.prefix) + plan.queries[documents] + len(template.middle)
        offsets = np.concatenate([[0], (start_lengths + text_lengths + len(template.suffix)).cumsum()])
        if (offsets[1:] == offsets[:-1]).any():
            raise _empty(*pairs[documents[(offsets[1:] == offsets[:-1]).argmax()]])
        ids = np.empty(offsets[-1], dtype=np.int64)
        for place, token in enumerate(template.suffix, -len(template.suffix)):
            ids[offsets[1:] + place] = token
        tokens, shift = self.documents.tokens, self.documents.offsets[plan.rows][documents]
        into = offsets[:-1] + start_lengths
        if self.splitting.title:
            for text, title, first in zip(into.tolist(), titles.tolist(), shift.tolist(), strict=True):
                ids[text : text + title] = tokens[first : first + title]
        slices = (offsets[:-1], into, into + titles, into + text_lengths, shift + begins, shift + ends)
        in_order = zip(documents.tolist(), *(places.tolist() for places in slices), strict=True)
        for document, at, text, own, end, first, last in in_order:
            ids[at:text] = starts[pairs[document][0]]
            ids[own:end] = tokens[first:last]
        types = None
        if template.token_types is not None:
            parts = np.empty((len(documents), 5), dtype=np.int64)
            parts[:, 0], parts[:, 2], parts[:, 4] = len(template.prefix), len(template.middle), len(template.suffix)
            parts[:, 1], parts[:, 3] = plan.queries[documents], text_lengths
            types = torch.from_numpy(np.repeat(np.tile(template.token_types, len(documents)), parts.ravel()))
        return Packed(torch.from_numpy(ids), types, torch.from_numpy(offsets), torch.from_numpy(documents))

    def _plan(self, pairs: Pairs) -> _Plan:
        half, count = self.max_tokens // 2, len(pairs)
        rows = np.fromiter((self.documents.rows[doc_id] for _, doc_id in pairs), np.int64, count)
        queries = np.fromiter((len(self.queries[query_id]) for query_id, _ in pairs), np.int64, count).clip(max=half)
        lengths = self.documents.offsets[rows + 1] - self.documents.offsets[rows]
        return _Plan(rows, queries, lengths, self.splitting.passages(lengths, self.max_tokens - queries))

    def _merged(self, pairs: Pairs) -> Packed:
        """The passages for a template whose text may merge with the end of a query or passage: part by part."""
        ids: list[np.ndarray] = []
        types: list[np.ndarray] = []
        offsets, documents = [0], []
        for number, (query_id, doc_id) in enumerate(pairs):
            query, tokens = self.query(query_id), self.documents[doc_id]
            for begin, end in self.split(query_id, doc_id).tolist():
                title = tokens[: self.splitting.title if begin else 0]
                parts = self.template.parts(query, np.concatenate([title, tokens[begin:end]]))
                if not any(map(len, parts)):
                    raise _empty(query_id, doc_id)
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


def _empty(query_id: str, doc_id: str) -> UserError:
    return UserError(
        f"query {query_id}, document {doc_id}: both are empty, and the encoder's tokenizer adds no "
        "token; leave one of them out, or give a template with --encoder.template"
    )
