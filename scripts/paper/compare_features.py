"""Compares the network for feature vectors, with trees, and its settings with each other: makes the runs and tables.

    pip install lightgbm
    python -m scripts.paper.compare_features MQ2008

A cell is a transform of the features and a rate of dropout; each is trained on all folds with three seeds. `chosen` is,
in each fold, the cell with the best nDCG@10 on the validation queries, the mean over the seeds. The values of a network
are means over its three seeds, query by query. The trees are those of lambdarank.py, which has a search of its own.
A second table has ensembles of five seeds: of the trees, of the default network and of the chosen cells, fused by
`rerank fuse` with equal weights.

Every run of a network is an ordinary `rerank` command, which is printed. Existing runs are kept, so the script resumes
after an interruption. Flags that the script does not know are passed to `rerank train` (--loss listnet, --epochs 20).
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from rerank.data.folds import read_folds
from rerank.data.trec import read_qrels, read_run, write_run
from rerank.data.types import Measurements
from rerank.evaluation.compare import Comparison
from rerank.evaluation.evaluate_runs import evaluate_runs, map_to_folds, select_queries
from rerank.evaluation.tables.table import FORMATS, aligned, render
from rerank.runs.layout import CollectionFolder
from rerank.utils.errors import UserError
from rerank.utils.progress import log_to_terminal
from scripts.paper.commands import rerank
from scripts.paper.lambdarank import NAME as TREES
from scripts.paper.lambdarank import make_runs, seed_name
from scripts.paper.tables import MEASURES, open_results

CELLS = ("none-0", "none-0.5", "quantile-0", "quantile-0.5", "log1p-0")
"""transform-dropout; the first has the default settings."""
SEARCH_SEEDS = 3
CHOOSES = "nDCG@10"
CHOSEN = "chosen"


def train(cell: str, seed: int, common: Sequence[str], fold: str = "all") -> str:
    """Trains a cell with a seed unless it is trained; returns the name of the experiment."""
    transform, _, dropout = cell.partition("-")
    name = f"{cell}-seed={seed}"
    words = ["train", *common, "--fold", fold, "--name", name, "--seed", str(seed)]
    words += ["--network.transform", transform, "--network.dropout", dropout]
    rerank(*words)
    return name


def choose(folder: CollectionFolder, names: dict[str, list[str]]) -> dict[str, str]:
    """Fold -> the cell with the best validation mean over its experiments, `names`; the first of several."""
    results = open_results(folder.path)

    def mean(cell: str, fold: str) -> float:
        return fmean(results.validation_mean(name, fold, CHOOSES) for name in names[cell])

    return {fold: max(names, key=lambda cell: mean(cell, fold)) for fold in results.folds}


def write_chosen(folder: CollectionFolder, chosen: dict[str, str], seed: int) -> Path:
    """The test runs of the chosen cells with a seed, as one run."""
    out = folder.path / f"{CHOSEN}-seed={seed}.run"
    parts = [folder.experiment(f"{cell}-seed={seed}").fold(fold).test_run for fold, cell in chosen.items()]
    write_run(out, {query: scores for part in parts for query, scores in read_run(part).items()}, CHOSEN)
    return out


def fuse(runs: Sequence[Path], out: Path) -> Path:
    """The ensemble of several runs: the mean of their scores, scaled to [0, 1] for each query."""
    weights = ["1"] * len(runs)
    rerank("fuse", *map(str, runs), "--out", str(out), "--method", "interpolate", "--weights", *weights)
    return out


def compare(rows: dict[str, list[Path]], folder: CollectionFolder, measures: Sequence[str]) -> Comparison:
    """The rows compared with the first; a row's values are means over its runs, query by query."""
    qrels = read_qrels(folder.qrels)
    queries = select_queries(qrels, map_to_folds(read_folds(folder.folds)))
    runs = {f"{name} {number}": read_run(path) for name, paths in rows.items() for number, path in enumerate(paths)}
    evaluation = evaluate_runs(runs, qrels, queries, measures)
    means = {
        name: mean_of([evaluation.measurements[f"{name} {number}"] for number in range(len(paths))])
        for name, paths in rows.items()
    }
    return Comparison(replace(evaluation, measurements=means), next(iter(rows)))


def mean_of(measurements: Sequence[Measurements]) -> Measurements:
    """The means of several runs, query by query."""
    return {
        measure: {query_id: fmean(each[measure][query_id] for each in measurements) for query_id in values}
        for measure, values in measurements[0].items()
    }


def make_tables(given: argparse.Namespace, rest: list[str]) -> str:
    """Makes the missing runs and returns the tables."""
    output = ["--output.folder", given.output]
    folder = CollectionFolder(Path(given.output) / Path(given.collection).resolve().name)
    tree_runs = [folder.experiment(name).all_run for name in (TREES, *map(seed_name, range(given.seeds)))]
    if not all(run.is_file() for run in tree_runs):
        print(make_runs(given.collection, given.output, given.seeds), file=sys.stderr)
    common = ["--config", given.config, "--collection", given.collection, *output, *rest]
    names: dict[str, list[str]] = {cell: [] for cell in given.cells}
    for seed in range(SEARCH_SEEDS):
        for cell in given.cells:
            names[cell].append(train(cell, seed, common))
    chosen, default = choose(folder, names), given.cells[0]
    for seed in range(SEARCH_SEEDS, given.seeds):
        train(default, seed, common)
        for fold, cell in chosen.items():
            train(cell, seed, common, fold)
    chosen_runs = [write_chosen(folder, chosen, seed) for seed in range(given.seeds)]
    default_runs = [folder.experiment(f"{default}-seed={seed}").all_run for seed in range(given.seeds)]
    single = {TREES: tree_runs[:1]}
    single |= {cell: [folder.experiment(name).all_run for name in names[cell]] for cell in names}
    single[CHOSEN] = chosen_runs[:SEARCH_SEEDS]
    ensembles = {TREES: tree_runs[1:], default: default_runs, CHOSEN: chosen_runs}
    fused = {
        f"{name} × {given.seeds}": [fuse(runs, folder.path / f"{name}-fused.run")] for name, runs in ensembles.items()
    }
    parts = [aligned([["fold", CHOSEN], *map(list, chosen.items())])]
    for rows in (single, fused):
        summary, details = compare(rows, folder, MEASURES).table(), compare(rows, folder, [CHOOSES]).table(details=True)
        parts += [render(summary, given.format), render(details, given.format)]
    return "\n\n".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", help="a feature set: a file or a folder of folds")
    parser.add_argument("--config", default="configs/mq2008.toml", help="the settings that all cells share")
    parser.add_argument("--output", default="runs", help="the folder that holds the collections' folders")
    parser.add_argument("--format", choices=FORMATS, default="text", help="of the tables")
    parser.add_argument("--cells", nargs="+", default=CELLS, metavar="TRANSFORM-DROPOUT", help="default first")
    parser.add_argument("--seeds", type=int, default=5, help="of the ensembles")
    log_to_terminal()
    try:
        print(make_tables(*parser.parse_known_args()))
    except UserError as error:
        sys.exit(f"compare_features.py: {error}")
