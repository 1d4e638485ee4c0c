"""Cuts the texts of a request where it says, after they are tokenised."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rerank.batches.passages import PassageBuilder
from rerank.data.tokens import TokenStore
from rerank.models.rankings import TokenisedPairs
from rerank.serving.refusals import Reason, RefusalError


class TokenLimits(NamedTuple):
    """What a request keeps of its texts; None is what the model keeps.

    document, query: tokens of one; pair: tokens of a query and a document with the special tokens; passages: those of a
    document; overlap: the tokens that a passage shares with the one before it.
    """

    document: int | None = None
    query: int | None = None
    pair: int | None = None
    passages: int | None = None
    overlap: int | None = None


UNLIMITED = TokenLimits()


def keep(found: TokenisedPairs, limits: TokenLimits) -> TokenisedPairs:
    """The same pairs with the tokens that the limits leave; a document's own limit was kept when it was tokenised.

    Raises RefusalError for an overlap that leaves a passage no tokens of its own.
    """
    builder = found.builder
    if limits.query is not None:
        builder = replace(builder, queries={name: ids[: limits.query] for name, ids in builder.queries.items()})
    if limits.overlap is not None:
        builder = replace(builder, splitting=builder.splitting._replace(overlap=limits.overlap))
        room = min((_room(builder, query_id) for query_id, _ in found.pairs), default=0)
        if builder.splitting.repeated >= room:
            most = room - builder.splitting.title - 1
            raise RefusalError(Reason.INVALID, f"overlap_tokens: got {limits.overlap}, expected at most {most}")
    if limits.pair is None and limits.passages is None:
        return found._replace(builder=builder)
    documents = builder.documents
    rows = [documents[doc_id][: _most(builder, query_id, limits)] for query_id, doc_id in found.pairs]
    store = TokenStore(
        np.concatenate([np.zeros(0, np.int32), *rows]),
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        documents.lengths[[documents.rows[doc_id] for _, doc_id in found.pairs]],
        {str(number): number for number in range(len(rows))},
    )
    pairs = [(query_id, str(number)) for number, (query_id, _) in enumerate(found.pairs)]
    return TokenisedPairs(replace(builder, documents=store), pairs, found.places)


def _room(builder: PassageBuilder, query_id: str) -> int:
    """The tokens of a document that a passage has beside the query."""
    return builder.max_tokens - len(builder.query(query_id))


def _most(builder: PassageBuilder, query_id: str, limits: TokenLimits) -> int | None:
    """The tokens of a document that a pair and its passages may have."""
    most = []
    if limits.passages is not None:
        repeated = builder.splitting.repeated
        most.append(limits.passages * (_room(builder, query_id) - repeated) + repeated)
    if limits.pair is not None:
        special = builder.max_length - builder.max_tokens
        most.append(max(0, limits.pair - special - len(builder.query(query_id))))
    return min(most, default=None)
