"""Makes Table 1 of Thonet et al. 2021, the size of feature-based data sets: means over their folds.

    python -m scripts.paper table1 MQ2008

counts the queries and the documents of each split of each fold, and reads nothing but the feature files.
"""

import argparse
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from rerank.data.letor.layouts import fold_names, open_fold
from rerank.evaluation.tables import aligned

SPLITS = ("train", "valid", "test")
FOLDS = 5
"""Folds that a data set of one file is cut into, as `rerank train` does."""


def sizes(source: str) -> list[str]:
    """The row of a data set: queries, then documents, of each split. Raises UserError for malformed files."""
    queries: dict[str, list[int]] = {split: [] for split in SPLITS}
    documents: dict[str, list[int]] = {split: [] for split in SPLITS}
    for name in fold_names(source, FOLDS):
        with TemporaryDirectory() as cache:
            fold, store = open_fold(source, name, FOLDS, Path(cache))
            for split in SPLITS:
                judged = store.features.subset(getattr(fold, split)).qrels()
                queries[split].append(len(judged))
                documents[split].append(sum(map(len, judged.values())))
    return [Path(source).name, *(f"{fmean(counts[split]):,.0f}" for counts in (queries, documents) for split in SPLITS)]


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", help="folders or files of feature vectors")
    head = ["", *(f"{what}, {split}" for what in ("queries", "documents") for split in SPLITS)]
    print(aligned([head, *map(sizes, parser.parse_args(words).collections)]))
