r"""Compares SmoothI's alphas and their variants on a text collection.

    rerank demo runs/demo
    python -m scripts.paper.alpha_text runs/demo/collections/towns runs/demo/encoder alpha.jsonl \
        --output.folder runs/alpha --lists.relevant 2 --lists.non-relevant 4 --epochs 5 --training.lists-per-epoch 48 \
        --training.lists-per-step 4 --lr 1e-3 --training.head-lr 1e-3 --training.patience 2 --training.measure nDCG@10
    python -m scripts.paper.alpha_text cystic-fibrosis all-MiniLM-L6-v2 alpha.jsonl --sizes 2+2 2+4 4+12 all+all \
        --config configs/query-adapter.toml --first-stage.run three.run --first-stage.fusion rrf --epochs 6

Each arm and seed is `rerank train` over the folds; flags that the script does not know are passed to it. A line for
each fold with its test values of nDCG@10 is added to the file, and lines that it has are not made again. The table at
the end takes each family's alpha, for every fold and seed, from the validation queries.
"""

import argparse
import json
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from rerank.cli.main import main
from rerank.runs.layout import CollectionFolder
from rerank.runs.results import CollectionResults
from scripts.paper import alpha_variants
from scripts.paper.alpha_tables import Row, read_rows, table

MEASURE = "nDCG@10"
ARMS: dict[str, dict[str, Any]] = {
    "smoothi=1": {"alpha": 1.0},
    "smoothi=3": {"alpha": 3.0},
    "smoothi=10": {"alpha": 10.0},
    "smoothi=30": {"alpha": 30.0},
    "smoothi_bounded=1": {"alpha": 1.0},
    "smoothi_bounded=3": {"alpha": 3.0},
    "smoothi_relative=3": {"alpha": 3.0},
    "smoothi_relative=6": {"alpha": 6.0},
    "smoothi_relative=10": {"alpha": 10.0},
    "smoothi_scale_free=3": {"alpha": 3.0},
    "smoothi_scale_free=10": {"alpha": 10.0},
    "smoothi_annealed=10": {"alpha": 10.0, "lists": 240},
    "hinge": {},
    "lambda_loss": {},
}
"""The hyperparameters of each arm; the loss is the name up to the sign."""


def train(given: argparse.Namespace, rest: list[str], arm: str, seed: int, sampled: str) -> list[Row]:
    """Trains the folds of an arm one by one, for `alpha_variants.restart`, on lists of a size unless it is ""."""
    parts = [arm.replace("=", "-"), sampled.replace("+", "-"), str(seed)]
    loss, name = arm.partition("=")[0], ".".join(filter(None, parts))
    words = ["--collection", given.collection, "--encoder", given.encoder, "--name", name, "--seed", str(seed)]
    if sampled:
        relevant, _, non_relevant = sampled.partition("+")
        words += ["--lists.relevant", relevant, "--lists.non-relevant", non_relevant]
    words += ["--loss", loss, *(word for key, value in ARMS[arm].items() for word in (f"--loss.{key}", str(value)))]
    rows = []
    for fold in given.folds:
        alpha_variants.restart()
        main(["train", "--fold", fold, *words, "--output.folder", given.output, *rest])
        folder = CollectionFolder(Path(given.output) / Path(given.collection).name)
        manifest = json.loads(folder.experiment(name).fold(fold).manifest.read_text(encoding="utf-8"))
        values = CollectionResults(folder, [MEASURE], name).test_values(name, fold, MEASURE)
        size = str(manifest["config"]["lists"]["relevant"]) + "+" + str(manifest["config"]["lists"]["non_relevant"])
        rows.append(Row(arm, size, seed, fold, manifest["best_epoch"], manifest["best_valid"], values))
        print(f"{arm}, seed {seed}, fold {fold}: {fmean(values.values()):.4f}", flush=True)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("encoder")
    parser.add_argument("out", type=Path, help="a file of lines of JSON")
    parser.add_argument("--arms", nargs="*", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--sizes", nargs="*", default=[""], help="of lists, such as 2+4 or all+all; default: one size")
    parser.add_argument("--folds", nargs="*", default=["1", "2", "3", "4", "5"])
    parser.add_argument("--output.folder", dest="output", default="runs")
    given, rest = parser.parse_known_args()
    alpha_variants.register()
    done = {(row.arm, row.size if any(given.sizes) else "", row.seed, row.fold) for row in read_rows(given.out)}
    for seed, sampled, arm in product(given.seeds, given.sizes, given.arms):
        if any((arm, sampled, seed, fold) not in done for fold in given.folds):
            trained = train(given, rest, arm, seed, sampled)
            with given.out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row._asdict()) + "\n" for row in trained)
    print(table([row for row in read_rows(given.out) if row.arm in given.arms], MEASURE))
