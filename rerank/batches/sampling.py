"""Which documents make a training list, and which lists make an epoch: a function of seed and epoch alone."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from rerank.types import Candidates

Count = int | Literal["all"]


def sample_list(candidates: Candidates, relevant: Count, non_relevant: Count, rng: np.random.Generator) -> Candidates:
    """Up to `relevant` relevant (label >= 1) and `non_relevant` other documents, drawn without repetition.

    Their order is drawn too: ListMLE takes documents of one label as they come, so it would learn the first stage's
    order. A query that has fewer gives what it has.
    """
    labels = np.asarray(candidates.labels)
    chosen = rng.permutation(
        np.concatenate(
            [_draw(np.flatnonzero(labels >= 1), relevant, rng), _draw(np.flatnonzero(labels < 1), non_relevant, rng)]
        )
    )
    return Candidates(
        candidates.query_id,
        tuple(candidates.doc_ids[i] for i in chosen),
        tuple(candidates.labels[i] for i in chosen),
    )


def _draw(places: np.ndarray, count: Count, rng: np.random.Generator) -> np.ndarray:
    if count == "all" or count >= len(places):
        return places
    return rng.choice(places, size=count, replace=False)


def epoch_lists(
    trainable: Sequence[Candidates], epoch: int, lists: Count, relevant: Count, non_relevant: Count, seed: int
) -> list[Candidates]:
    """The `lists` training lists of an epoch (counted from 0), of the queries of `epoch_queries`."""
    return [
        sample_list(trainable[query], relevant, non_relevant, np.random.default_rng([seed, 1, place]))
        for place, query in epoch_queries(len(trainable), epoch, lists, seed)
    ]


def epoch_queries(queries: int, epoch: int, lists: Count, seed: int) -> list[tuple[int, int]]:
    """The place, counted over all epochs, and the query's number of the `lists` lists of an epoch (counted from 0).

    Queries come in rounds, each round a new order of all of them, and a round goes on in the next epoch, so that over
    time every query is used equally often; "all" is one round an epoch. Nothing but the arguments decides: a resumed
    run sees the same lists.
    """
    each = queries if lists == "all" else lists
    chosen: list[tuple[int, int]] = []
    for place in range(epoch * each, (epoch + 1) * each):
        cycle, index = divmod(place, queries)
        if not chosen or index == 0:
            order = np.random.default_rng([seed, 0, cycle]).permutation(queries).tolist()
        chosen.append((place, order[index]))
    return chosen
