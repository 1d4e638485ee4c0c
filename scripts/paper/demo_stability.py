"""How far the demo's table moves with the seed, the threads and the processor's rounding.

    python -m scripts.paper.demo_stability FOLDER

trains the demo's two losses with three seeds, on one thread and on two, each with the vector instructions of this
processor and with those of every x86 processor, whose sums have another order. A condition that is finished is not
trained again. It prints the mean of a measure for each row and condition, how far each row moves, and whether the order
of the rows is always the same.
"""

import argparse
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from rerank.cli.demo import LOSSES, demo_config, make_inputs
from rerank.config import FirstStageSettings
from rerank.data.trec import read_qrels, read_run
from rerank.evaluation.evaluate import evaluate
from rerank.jobs.train import train_folds
from rerank.runs.layout import CollectionFolder

INSTRUCTIONS = {
    "own": {},
    "compatible": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"},
}


class Condition(NamedTuple):
    """What differs between two runs of the demo."""

    seed: int
    threads: int
    instructions: str


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--measure", default="nDCG@10")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--train", type=int, help=argparse.SUPPRESS)  # a seed: what the processes are told
    words = parser.parse_args()
    if words.train is not None:
        train(words.folder, words.train)
        return
    conditions = [Condition(*one) for one in itertools.product(words.seeds, (1, 2), INSTRUCTIONS)]
    means = {condition: _means(words.folder, condition, words.measure) for condition in conditions}
    rows = list(next(iter(means.values())))
    print(f"seed  threads  instructions  {'  '.join(f'{row:>8}' for row in rows)}")
    for (seed, threads, instructions), of in means.items():
        print(f"{seed:>4}  {threads:>7}  {instructions:>12}  {'  '.join(f'{of[row]:8.4f}' for row in rows)}")
    spread = {row: max(of[row] for of in means.values()) - min(of[row] for of in means.values()) for row in rows}
    orders = {tuple(sorted(rows, key=of.__getitem__)) for of in means.values()}
    print(f"largest difference{'':>11}  {'  '.join(f'{spread[row]:8.4f}' for row in rows)}")
    print("orders, lowest first: " + "; ".join(" < ".join(order) for order in sorted(orders)))


def train(folder: Path, seed: int) -> None:
    """Trains both losses with a seed."""
    make_inputs(folder)
    for loss in LOSSES:
        train_folds(demo_config(folder, loss, seed))


def _means(folder: Path, condition: Condition, measure: str) -> dict[str, float]:
    """The mean over the queries of each row, which is trained first if it is not."""
    place = folder / "-".join(map(str, condition))
    environment = os.environ | {"OMP_NUM_THREADS": str(condition.threads)} | INSTRUCTIONS[condition.instructions]
    words = [sys.executable, "-m", "scripts.paper.demo_stability", str(place), "--train", str(condition.seed)]
    subprocess.run(words, env=environment, check=True)
    results = CollectionFolder(place / "towns")
    qrels = read_qrels(results.qrels)
    runs = {"bm25": results.first_stage(FirstStageSettings())}
    runs |= {loss: results.experiment(loss).all_run for loss in LOSSES}
    values = {row: evaluate(qrels, read_run(path), [measure])[measure] for row, path in runs.items()}
    return {row: sum(of.values()) / len(of) for row, of in values.items()}


if __name__ == "__main__":
    main()
