"""Makes Table 1 of Thonet et al. 2021, the size of feature-based data sets: means over their folds.

    python -m scripts.paper table1 MQ2008

counts the queries and the documents of each part of each fold, and reads nothing but the feature files.
"""

import argparse
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from rerank.data.letor.layouts import fold_names, open_fold
from rerank.evaluation.tables import aligned

PARTS = ("train", "valid", "test")
FOLDS = 5
"""Folds that a data set of one file is cut into, as `rerank train` does."""


def sizes(source: str) -> list[str]:
    """The row of a data set: queries, then documents, of each part. Raises UserError for malformed files."""
    queries: dict[str, list[int]] = {part: [] for part in PARTS}
    documents: dict[str, list[int]] = {part: [] for part in PARTS}
    for name in fold_names(source, FOLDS):
        with TemporaryDirectory() as cache:
            fold, store = open_fold(source, name, FOLDS, Path(cache))
            for part in PARTS:
                judged = store.features.subset(getattr(fold, part)).qrels()
                queries[part].append(len(judged))
                documents[part].append(sum(map(len, judged.values())))
    return [Path(source).name, *(f"{fmean(counts[part]):,.0f}" for counts in (queries, documents) for part in PARTS)]


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="folders or files of feature vectors")
    head = ["", *(f"{what}, {part}" for what in ("queries", "documents") for part in PARTS)]
    print(aligned([head, *map(sizes, parser.parse_args(words).collections)]))
