"""Samples the documents of a training list and the lists of an epoch, repeatably by seed and epoch."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from rerank.data.types import Candidates

Count = int | Literal["all"]


def sample_list(candidates: Candidates, relevant: Count, non_relevant: Count, rng: np.random.Generator) -> Candidates:
    """Up to `relevant` relevant (label >= 1) and `non_relevant` other documents, sampled without replacement.

    Their order is random too: ListMLE breaks ties of labels by the order of the documents, and would otherwise learn
    the first stage's order. A query with fewer documents gives all of them.
    """
    labels = np.asarray(candidates.labels)
    drawn = [_draw(labels >= 1, relevant, rng), _draw(labels < 1, non_relevant, rng)]
    chosen = rng.permutation(np.concatenate(drawn))
    return Candidates(
        candidates.query_id,
        tuple(candidates.doc_ids[i] for i in chosen),
        tuple(candidates.labels[i] for i in chosen),
        tuple(candidates.first_scores[i] for i in chosen) if candidates.first_scores else (),
    )


def _draw(possible: np.ndarray, count: Count, rng: np.random.Generator) -> np.ndarray:
    indices = np.flatnonzero(possible)
    if count == "all" or count >= len(indices):
        return indices
    return rng.choice(indices, size=count, replace=False)


def epoch_lists(
    trainable: Sequence[Candidates], epoch: int, lists: Count, relevant: Count, non_relevant: Count, seed: int
) -> list[Candidates]:
    """The training lists of an epoch (counted from 0), for the queries of `epoch_queries`."""
    return [
        sample_list(trainable[query], relevant, non_relevant, np.random.default_rng([seed, 1, place]))
        for place, query in epoch_queries(len(trainable), epoch, lists, seed)
    ]


def epoch_queries(queries: int, epoch: int, lists: Count, seed: int) -> list[tuple[int, int]]:
    """The place, counted over all epochs, and the index of the query of each list of an epoch (counted from 0).

    Queries come in rounds, each a new random order of all queries. A round continues in the next epoch, so every query
    is used equally often in the long run; "all" is one round per epoch. The result depends only on the arguments, so a
    resumed training uses the same lists.
    """
    lists_per_epoch = queries if lists == "all" else lists
    chosen: list[tuple[int, int]] = []
    for place in range(epoch * lists_per_epoch, (epoch + 1) * lists_per_epoch):
        cycle, index = divmod(place, queries)
        if not chosen or index == 0:
            order = np.random.default_rng([seed, 0, cycle]).permutation(queries).tolist()
        chosen.append((place, order[index]))
    return chosen
