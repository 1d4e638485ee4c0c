"""Trains gradient-boosted trees on the folds of a feature set with LightGBM's lambdarank, for a row beside Table 2.

    pip install lightgbm
    python -m scripts.paper.lambdarank MQ2008
    rerank eval runs/MQ2008/lambdarank/all.run runs/MQ2008/smoothi/all.run

For each fold, every cell of GRID is trained on the training queries until NDCG@10 on the validation queries has not
risen for PATIENCE trees, and the cell with the best nDCG@10 on the validation queries scores the test queries. The runs
are written to runs/<collection>/lambdarank, in the layout of an experiment. One thread, one seed.

With `--seeds 5` the chosen cell of each fold is trained five times more, each tree on samples of the queries and of the
features that a seed decides, for an ensemble; the runs are those of lambdarank-seed=0 to lambdarank-seed=4.

LambdaMART: Burges, "From RankNet to LambdaRank to LambdaMART: An Overview", 2010. LightGBM: Ke et al. 2017.
"""

import argparse
import importlib
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import torch

from rerank.batches.features import rows_of, vectors
from rerank.config import Config, replace_setting
from rerank.data.letor.feature_set import FeatureSet
from rerank.data.letor.layouts import LetorFold
from rerank.data.trec import write_run
from rerank.data.types import Run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.tables.table import aligned
from rerank.experiments.features import open_features
from rerank.models.feature_scoring import run_of
from rerank.utils.errors import UserError
from rerank.utils.progress import log_to_terminal, progress

NAME = "lambdarank"
MEASURE = "nDCG@10"
GRID = {
    "learning_rate": (0.02, 0.05, 0.1),
    "num_leaves": (7, 15, 31),
    "min_data_in_leaf": (20, 50, 200),
}
FIXED = {
    "objective": "lambdarank",
    "metric": "ndcg",
    "eval_at": 10,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "feature_pre_filter": False,  # one data set serves every min_data_in_leaf
    "seed": 0,
    "verbosity": -1,
}
SAMPLED = {"bagging_fraction": 0.8, "bagging_freq": 1, "bagging_by_query": True, "feature_fraction": 0.8}
"""What a seed decides; without samples, LightGBM's trees do not depend on it."""
MOST_TREES = 1000
PATIENCE = 50


class Trained(NamedTuple):
    """The runs of one cell on one fold, its mean of MEASURE over the validation queries, and its number of trees."""

    cell: dict[str, float]
    trees: int
    mean: float
    valid: Run
    test: Run


def make_runs(source: str, output: str, seeds: int = 0) -> str:
    """Trains all folds and writes their runs, also those of `seeds` seeds; returns a table of the chosen cells."""
    lightgbm = import_lightgbm()
    begun = time.monotonic()
    config = Config()
    settings = {
        "collection.source": source,
        "output.folder": output,
        "lists.relevant": "all",
        "lists.non_relevant": "all",
    }
    for key, value in settings.items():
        config = replace_setting(config, key, value)
    dataset = open_features(config, "all")
    dataset.write_references()
    names = [NAME, *(seed_name(seed) for seed in range(seeds))]
    rows: list[list[str]] = []
    tests: dict[str, Run] = {name: {} for name in names}
    for fold_name, fold in dataset.sets.items():
        results = progress(train_cells(lightgbm, fold), len(cells()), f"fold {fold_name}, cells")
        best = max(results, key=lambda result: result.mean)  # the first of several
        sampled = [best.cell | SAMPLED | {"seed": seed} for seed in range(seeds)]
        of_seeds = list(progress(train_cells(lightgbm, fold, sampled), seeds, f"fold {fold_name}, seeds"))
        for name, result in zip(names, [best, *of_seeds], strict=True):
            folder = dataset.folder.experiment(name).fold(fold_name)
            write_run(folder.valid_run, result.valid, name)
            write_run(folder.test_run, result.test, name)
            tests[name] |= result.test
        rows.append([fold_name, *map(str, best.cell.values()), str(best.trees), f"{best.mean:.4f}"])
    for name, test in tests.items():
        write_run(dataset.folder.experiment(name).all_run, test, name)
    head = ["fold", *GRID, "trees", f"validation {MEASURE}"]
    note = f"{len(cells())} cells a fold, LightGBM {lightgbm.__version__}, {time.monotonic() - begun:.0f} s"
    return f"{aligned([head, *rows])}\n\n{note}\n{dataset.folder.experiment(NAME).all_run}"


def seed_name(seed: int) -> str:
    """The name of the experiment of a seed."""
    return f"{NAME}-seed={seed}"


def cells() -> list[dict[str, float]]:
    """Every combination of GRID."""
    return [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]


def train_cells(lightgbm: Any, fold: LetorFold, of: Sequence[dict[str, Any]] | None = None) -> Iterator[Trained]:
    """Yields what each cell reaches on a fold; all cells of GRID, or others."""
    train = lightgbm_dataset(lightgbm, fold.train)
    valid = lightgbm_dataset(lightgbm, fold.valid, reference=train)
    judged = fold.valid.qrels()
    for cell in cells() if of is None else of:
        booster = lightgbm.train(
            FIXED | cell,
            train,
            num_boost_round=MOST_TREES,
            valid_sets=[valid],
            callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
        )
        run = run_of_booster(booster, fold.valid)
        mean = fmean(evaluate(judged, run, [MEASURE])[MEASURE].values())
        yield Trained(cell, booster.best_iteration, mean, run, run_of_booster(booster, fold.test))


def lightgbm_dataset(lightgbm: Any, features: FeatureSet, reference: Any = None) -> Any:
    """The set as LightGBM takes it, query by query."""
    rows = rows_of(features, range(len(features.query_ids)))
    sizes = features.stops - features.starts
    matrix = vectors(features, rows).numpy()
    return lightgbm.Dataset(matrix, features.labels[rows], reference, group=sizes, params=FIXED, free_raw_data=False)


def run_of_booster(booster: Any, features: FeatureSet) -> Run:
    """The scores of all documents, with the trees up to the best iteration."""
    rows = rows_of(features, range(len(features.query_ids)))
    return run_of(features.qrels(), torch.from_numpy(booster.predict(vectors(features, rows).numpy(), num_threads=1)))


def import_lightgbm() -> Any:
    """The package; raises UserError if it is not installed."""
    try:
        return importlib.import_module("lightgbm")
    except ImportError as error:
        raise UserError(f"LightGBM cannot be imported ({error}): pip install lightgbm") from error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", help="a feature set: a file or a folder of folds")
    parser.add_argument("--output", default="runs", help="the folder that holds the collections' folders")
    parser.add_argument("--seeds", type=int, default=0, help="seeds of an ensemble")
    given = parser.parse_args()
    log_to_terminal()
    try:
        print(make_runs(given.collection, given.output, given.seeds))
    except UserError as error:
        sys.exit(f"lambdarank.py: {error}")
