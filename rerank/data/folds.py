"""Folds: the training, validation and test queries of a model, published by a collection or drawn at random."""

import hashlib
import json
import random
from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rerank.data.types import FINAL, Fold, Judgments, Qrels
from rerank.utils.errors import UserError
from rerank.utils.files import write_text
from rerank.utils.json_files import check_shape, read_json

SPLIT = "split"
"""The name of the only fold of a collection with a published split."""
SHARE = 0.1
"""The share of the training queries that is held out for validation, if no validation queries are given."""
SPLITS = {"test": "test", "valid": "validation", "train": "training"}
"""The splits of a fold -> their names in messages. A query in several published splits belongs to the first."""


class Judged(NamedTuple):
    """Judgments, the folds published with them, and notes: log lines about the folds and about unused files."""

    qrels: Judgments
    folds: tuple[Fold, ...] = ()
    notes: tuple[str, ...] = ()


def judgments_of(split: str, fold: Fold, qrels: Judgments) -> Qrels:
    """The judgments of the queries of a split, one of SPLITS."""
    return {query_id: qrels[query_id] for query_id in getattr(fold, split) if query_id in qrels}


def make_folds(query_ids: Iterable[str], k: int = 5, seed: int = 0) -> list[Fold]:
    """`k` folds of nearly equal size, named 1 to k; the same queries and seed give the same folds in any order.

    Raises UserError for fewer than 3 folds (one tests, one validates, the rest train) or fewer queries than folds.
    """
    shuffled = sorted(set(query_ids))
    if not 3 <= k <= len(shuffled):
        raise UserError(f"folds: got {k} for {len(shuffled)} judged queries; expected 3 or more, and as many queries")
    random.Random(seed).shuffle(shuffled)
    return official_folds([(str(i + 1), sorted(shuffled[i::k])) for i in range(k)])


def official_folds(groups: Sequence[tuple[str, Iterable[str]]]) -> list[Fold]:
    """The folds of (name, query ids) groups: group i tests, group i - 1 (cyclic) validates, the rest train.

    Raises UserError for fewer than 3 groups, and ValueError for a query that is in two of them.
    """
    if len(groups) < 3:
        raise UserError(f"folds: expected at least 3 (one tests, one validates, the rest train), got {len(groups)}")
    members = [tuple(query_ids) for _, query_ids in groups]
    folds = []
    for i, (name, _) in enumerate(groups):
        others = (queries for j, queries in enumerate(members) if j not in (i, (i - 1) % len(groups)))
        folds.append(Fold(name, tuple(chain.from_iterable(others)), members[i - 1], members[i]))
    return folds


def merge_splits(splits: Mapping[str, Judgments], source: str, *notes: str) -> Judged:
    """All judgments, and the fold of the splits "train", "test" and, optionally, "valid"; `notes` come first.

    A query in several splits belongs to the first in the order of SPLITS, with only that split's judgments; a note
    counts such queries. Without validation queries, `hold_out` draws some of the training queries. Its seed does not
    depend on `--seed`, because all experiments share the fold. Raises UserError, with `source`, if too few queries are
    left to train on.
    """
    split_of: dict[str, str] = {}
    counts: Counter[tuple[str, str]] = Counter()  # (a split, the split that its query belongs to) -> queries
    for split in SPLITS:
        counts.update((split, split_of.setdefault(query_id, split)) for query_id in splits.get(split, {}))
    test, valid, train = (tuple(q for q in splits.get(split, {}) if split_of[q] == split) for split in SPLITS)
    if not train:
        raise UserError(f"{source}: all its training queries validate or test too, so none is left to train on")
    drawn = ""
    if not valid:
        drawn = " of the training queries, drawn at random, as no others are published"
        train, valid = hold_out(train)
    shared = [
        f"{source}: {count} {SPLITS[split]} queries are {SPLITS[other]} queries too: "
        f"used only as {SPLITS[other]} queries"
        for (split, other), count in counts.items()
        if split != other
    ]
    split = (
        f"{source}: published split: {len(train)} queries train, {len(valid)} validate{drawn}, {len(test)} test; it is "
        f"the fold {SPLIT}"
    )
    # A lookup takes the first split that has the query; millions of judgments are not copied.
    merged: Judgments = ChainMap(*(splits[split] for split in SPLITS if split in splits))  # type: ignore[arg-type]
    return Judged(merged, (Fold(SPLIT, train, valid, test),), (*notes, *shared, split))


def hold_out(query_ids: Iterable[str], seed: int = 0) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divides queries into training and validation queries; SHARE of them, at least one, validate. Both keep the order.

    The same queries and seed give the same split in any order. Raises UserError for fewer than two queries.

    >>> hold_out(["a", "b", "c"])
    (('a', 'c'), ('b',))
    """
    query_ids = list(dict.fromkeys(query_ids))
    if len(query_ids) < 2:
        raise UserError(f"splits: got {len(query_ids)} judged queries to train on; expected 2 or more: one validates")
    valid = _drawn(tuple(query_ids), max(1, round(SHARE * len(query_ids))), seed)
    held_out = set(valid)
    return tuple(query_id for query_id in query_ids if query_id not in held_out), valid


def final_fold(query_ids: Iterable[str], seed: int = 0) -> Fold:
    """The fold of the model to deploy, without test queries: see `hold_out`."""
    return Fold(FINAL, *hold_out(query_ids, seed), ())


def fold_seed(seed: int, name: str) -> int:
    """The seed of a fold's initial weights, training lists and dropout: each fold of `--seed` has its own.

    >>> fold_seed(0, "1") == fold_seed(0, "2")
    False
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7], "big")


def draw_queries(fold: Fold, train: int | str = "all", valid: int | str = "all", seed: int = 0) -> Fold:
    """The fold with at most `train` training and `valid` validation queries, drawn by the seed, in their order.

    >>> draw_queries(Fold("1", ("a", "b", "c", "d"), ("e", "f"), ("g",)), 2, "all", seed=0)
    Fold(name='1', train=('b', 'd'), valid=('e', 'f'), test=('g',))
    """
    return Fold(fold.name, _drawn(fold.train, train, seed), _drawn(fold.valid, valid, seed), fold.test)


def _drawn(query_ids: tuple[str, ...], count: int | str, seed: int) -> tuple[str, ...]:
    """At most `count` random queries, or "all", in their order."""
    if isinstance(count, str) or count >= len(query_ids):
        return query_ids
    drawn = set(random.Random(seed).sample(sorted(query_ids), count))
    return tuple(query_id for query_id in query_ids if query_id in drawn)


def write_folds(path: str | Path, folds: Sequence[Fold]) -> None:
    """Writes the folds as JSON, one object a line."""
    lines = ",\n".join(json.dumps(vars(fold), ensure_ascii=False) for fold in folds)
    write_text(path, f"[\n{lines}\n]\n")


def read_folds(path: str | Path) -> list[Fold]:
    """Reads what `write_folds` wrote. Raises UserError for any other file, and for a missing one."""
    expected = "expected a list of folds with name, train, valid and test, as the folds.json of a run folder has"
    folds: list[Fold] = check_shape(read_json(path, list[Fold], expected), list[Fold])
    return folds
