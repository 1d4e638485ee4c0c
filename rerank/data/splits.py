"""Splits: which queries train, validate and test, where collections publish it, or it is left open."""

import functools
import random
from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rerank.data.folds import FINAL
from rerank.data.sources import Source
from rerank.data.types import Fold, Judgments
from rerank.utils.errors import UserError

SPLIT = "split"
"""The name of the only fold of a collection with a published split."""

SHARE = 0.1
"""The share of the queries that validate, if nothing else says which do."""

ORDER = ("test", "valid", "train")
"""Of the parts that have a query, the first of these is the one that uses it."""

WORDS = {"train": "training", "valid": "validation", "test": "test"}


class Judged(NamedTuple):
    """Judgments, the folds that they come with, and notes: lines about the folds, and about what is not used."""

    qrels: Judgments
    folds: tuple[Fold, ...] = ()
    notes: tuple[str, ...] = ()


def merge_splits(parts: Mapping[str, Judgments], source: str, *notes: str) -> Judged:
    """All judgments, and the fold of the parts: "train", "test" and, if there is one, "valid"; `notes` come first.

    A query of several parts tests rather than validates and validates rather than trains, with the judgments of that
    part alone; a note counts those left out of the other. Without validation queries, `hold_out` takes some of the
    training queries, with the same seed whatever `--seed` is, as the fold is one of all experiments. Raises UserError,
    with `source`, if too few queries are left to train on.
    """
    part_of: dict[str, str] = {}
    lost: Counter[tuple[str, str]] = Counter()
    for part in ORDER:
        for query_id in parts.get(part, {}):
            if query_id in part_of:
                lost[part, part_of[query_id]] += 1
            else:
                part_of[query_id] = part
    train, valid, test = (tuple(q for q in parts.get(part, {}) if part_of[q] == part) for part in WORDS)
    if not train:
        raise UserError(f"{source}: all its training queries validate or test too, so none is left to train on")
    drawn = "" if valid else " of the training queries, drawn at random, as no others are published"
    if not valid:
        train, valid = hold_out(train)
    told = (
        *(note for note in notes if note),
        *(
            f"{source}: {count} {WORDS[part]} queries are {WORDS[other]} queries too: used as these alone"
            for (part, other), count in lost.items()
        ),
        f"{source}: published split: {len(train)} queries train, {len(valid)} validate{drawn}, {len(test)} test; it is "
        f"the fold {SPLIT}",
    )
    # The first of these that has a query: its judgments are not copied, as there may be millions.
    merged: Judgments = ChainMap(*(parts[part] for part in ORDER if part in parts))  # type: ignore[arg-type]
    return Judged(merged, (Fold(SPLIT, train, valid, test),), told)


def hold_out(query_ids: Iterable[str], seed: int = 0) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The queries that train, and the SHARE of them, at least one, that validate; both in the order given.

    The same queries and seed give the same split in any order. Raises UserError for fewer than two queries.

    >>> hold_out(["a", "b", "c"])
    (('a', 'c'), ('b',))
    """
    query_ids = list(dict.fromkeys(query_ids))
    if len(query_ids) < 2:
        raise UserError(
            f"splits: got {len(query_ids)} judged queries to train on; expected 2 or more, as one validates"
        )
    count = max(1, round(SHARE * len(query_ids)))
    drawn = set(random.Random(seed).sample(sorted(query_ids), count))
    train = tuple(query_id for query_id in query_ids if query_id not in drawn)
    return train, tuple(query_id for query_id in query_ids if query_id in drawn)


def final_fold(query_ids: Iterable[str], seed: int = 0) -> Fold:
    """The fold of the model to deploy, without test queries: these queries train, but for those that validate.

    Raises UserError for too few queries.
    """
    train, valid = hold_out(query_ids, seed)
    return Fold(FINAL, train, valid, ())


@dataclass(frozen=True)
class WithSplits:
    """The queries of `tested` test, those of `train` train and those of `valid`, if any, validate; see `Source`.

    `given` is what the user wrote, if it is not the source of `tested`, and `note` a line about what is not used. The
    documents are those of `tested`. Opening raises UserError for other documents, for a collection without judgments,
    and for one with a split or folds of its own.
    """

    tested: Source
    train: Source
    valid: Source | None = None
    given: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for part, source in self._parts.items():
            source.expect_judgments()
            if source.folds:
                raise UserError(
                    f"{source.source}: has training and test queries of its own; expected the id or folder of its "
                    f"{part} queries alone"
                )
            if source.fingerprint != self.fingerprint:
                raise UserError(
                    f"{source.source}: has other documents ({source.fingerprint}) than {self.tested.source} "
                    f"({self.fingerprint}); training, validation and test queries must be of the same documents"
                )

    @property
    def _parts(self) -> dict[str, Source]:
        parts = {"train": self.train, "valid": self.valid, "test": self.tested}
        return {part: source for part, source in parts.items() if source is not None}

    @property
    def source(self) -> str:
        return self.given or self.tested.source

    @property
    def name(self) -> str:
        return self.given.replace("/", "-") or self.tested.name

    @functools.cached_property
    def queries(self) -> dict[str, str]:
        return self._merge({part: source.queries for part, source in self._parts.items()})

    def query_texts(self, field: str) -> dict[str, str]:
        return self._merge({part: source.query_texts(field) for part, source in self._parts.items()})

    def _merge(self, parts: Mapping[str, dict[str, str]]) -> dict[str, str]:
        """The queries of all parts; raises UserError for an id that is not the same query in all of them."""
        queries: dict[str, str] = {}
        for part, texts in parts.items():
            for query_id, text in texts.items():
                if queries.setdefault(query_id, text) != text:
                    raise UserError(
                        f"{self._parts[part].source}: query {query_id} is {text[:60]!r}, in another part of the split "
                        f"{queries[query_id][:60]!r}; expected one text for each id"
                    )
        return queries

    @functools.cached_property
    def _judged(self) -> Judged:
        return merge_splits({part: source.qrels for part, source in self._parts.items()}, self.source, self.note)

    @property
    def qrels(self) -> Judgments:
        return self._judged.qrels

    @property
    def folds(self) -> tuple[Fold, ...]:
        return self._judged.folds

    @property
    def notes(self) -> tuple[str, ...]:
        return self._judged.notes

    def expect_judgments(self) -> None:
        """Does nothing: opening has checked that all parts have judgments."""

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.tested, attribute)
