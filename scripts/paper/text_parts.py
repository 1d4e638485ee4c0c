"""Parts of judged queries drawn at random, and parts in which no query resembles one of another part; their statistics.

Cross-validation over parts by text measures what a pipeline is worth for queries on new topics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rerank.config import CollectionSettings, Config, OutputSettings
from rerank.data.folds import SPLIT, make_folds
from rerank.evaluation.significance import CONFIDENCE, RESAMPLES, SEED
from rerank.pipelines.crossfit import CrossFitting, Parts
from rerank.pipelines.stages.base import Stage
from rerank.pipelines.stages.neighbours import word_similarities
from rerank.pipelines.stages.world import World
from rerank.retrieval.words import find_words

PARTS = 5
LARGEST = 10
"""A group has one of so many queries of the collection at most."""

Groups = Sequence[Sequence[str]]
"""Query ids by group: queries of two groups have few words in common."""


@dataclass(frozen=True)
class Opened:
    """A collection with its index and vectors, and its judged queries: query_id to text."""

    world: World
    queries: Mapping[str, str]
    folder: Path

    @classmethod
    def of(cls, source: Path, folder: Path) -> "Opened":
        """The collection of a folder in BEIR's layout; of a published split, the validation queries are taken."""
        config = Config(collection=CollectionSettings(str(source)), output=OutputSettings(str(folder / "runs")))
        world = World.open(config)
        collection = world.collection
        published = [fold.valid for fold in collection.folds if fold.name == SPLIT]
        query_ids = published[0] if published else collection.queries
        queries = {q: collection.queries[q] for q in sorted(query_ids) if collection.qrels.get(q)}
        return cls(world.knowing(queries), queries, folder / source.resolve().name)

    def groups(self) -> Groups:
        """The queries in groups by their words (`join_nearest`)."""
        language = self.world.config.collection.language
        words = [[word.term for word in find_words(text, language)] for text in self.queries.values()]
        return join_nearest(list(self.queries), word_similarities(words))

    def random_parts(self, seed: int) -> Parts:
        """Parts that are drawn at random; those of the seed 0 are the parts of `rerank fit`."""
        return {fold.name: fold.test for fold in make_folds(self.queries, PARTS, seed)}

    def fitting(self, stages: Mapping[str, Stage], parts: Parts, name: str) -> CrossFitting:
        """The stages, to be cross-fitted over these parts; what the folder `name` has is not fitted again."""
        return CrossFitting(stages, self.world, parts, self.queries, self.folder / name)


def join_nearest(query_ids: Sequence[str], cosines: np.ndarray) -> Groups:
    """Groups of queries: the most similar pair of queries joins its groups first, and so on down to no likeness.

    A pair whose groups would have more than a tenth of the queries together is passed over. `cosines` are (queries,
    queries).

    >>> import numpy as np
    >>> cosines = np.eye(20)
    >>> cosines[0, 2], cosines[2, 3] = 0.9, 0.8  # with query 3 a group would have more than two queries
    >>> [group for group in join_nearest([f"q{number}" for number in range(20)], cosines) if len(group) > 1]
    [['q0', 'q2']]
    """
    group_of = [[query_id] for query_id in query_ids]
    first, second = np.triu_indices(len(query_ids), 1)
    for place in np.argsort(-cosines[first, second], kind="stable"):
        one, other = group_of[first[place]], group_of[second[place]]
        if cosines[first[place], second[place]] <= 0:
            break
        if one is not other and len(one) + len(other) <= len(query_ids) // LARGEST:
            one += other
            for query_id in other:
                group_of[query_ids.index(query_id)] = one
    return list({id(group): group for group in group_of}.values())


def pack(groups: Groups, count: int = PARTS) -> Parts:
    """Parts of nearly equal size: each group, the largest first, goes to the smallest part.

    >>> pack([["a"], ["b", "c"], ["d"]], 2)
    {'1': ('b', 'c'), '2': ('a', 'd')}
    """
    parts: list[list[str]] = [[] for _ in range(count)]
    for group in sorted(groups, key=len, reverse=True):
        min(parts, key=len).extend(group)
    return {str(number): tuple(part) for number, part in enumerate(parts, 1)}


def grouped_interval(differences: Mapping[str, float], groups: Groups) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean difference; groups are drawn, each with all its queries."""
    sums = np.array([sum(differences[query_id] for query_id in group) for group in groups])
    sizes = np.array([len(group) for group in groups])
    drawn = np.random.default_rng(SEED).integers(len(groups), size=(RESAMPLES, len(groups)))
    means = sums[drawn].sum(1) / sizes[drawn].sum(1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)
