"""nDCG@10 of a fine-tuned cross-encoder by the number of training queries of a collection with a published split.

    python -m scripts.paper.training_curve nfcorpus --encoder all-MiniLM-L6-v2 --folder curve

draws so many training queries, trains on them with the settings of Table 4, and measures the test queries: BM25's top
100, the trained model's order of them, and the two fused with weights that the validation queries choose. A row has the
means over the draws, each with the gain on BM25 and the p-value of a paired t-test over the queries, whose values are
means over the draws. The validation queries of an epoch are a sample, as they take longer than its training. What is in
the folder already is not trained again.
"""

import argparse
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rerank.config import (
    CollectionSettings,
    Config,
    EncoderSettings,
    FirstStageSettings,
    LossSettings,
    OutputSettings,
    TrainingSettings,
)
from rerank.data.collections import open_collection
from rerank.data.folds import read_folds
from rerank.data.runs import read_qrels, read_run
from rerank.evaluation.significance import paired_test
from rerank.evaluation.tables import aligned
from rerank.experiments.runs.layout import CollectionFolder
from rerank.experiments.train import train_folds
from scripts.paper.learning_curve import write_judgments
from scripts.paper.table4 import Values, fused_with, mean_over_seeds, measured

MEASURE = "nDCG@10"
LISTS = 256
"""Training lists of an epoch, the paper's number, for each number of queries: a list has two relevant documents."""


def split_of(source: Path, size: int, draw: int, target: Path) -> Path:
    """A copy of a collection, of its name, in which `size` of the training queries are left; written once."""
    copy = target / source.name
    if not copy.exists():
        partial = target / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(source, partial)
        collection = open_collection(str(source))
        (split,), qrels = collection.folds, collection.qrels
        usable = sorted(query for query in split.train if max(qrels[query].values(), default=0) > 0)
        drawn = random.Random(draw).sample(usable, size)
        write_judgments(partial / "qrels/train.tsv", {query: qrels[query] for query in drawn})
        partial.rename(copy)
    return copy


def values_of(source: Path, size: int, draw: int, args: argparse.Namespace) -> dict[str, Values]:
    """Row -> the values of the test queries: of the first stage, of the model, and of both."""
    place = args.folder / f"{size}-{draw}"
    training = TrainingSettings(
        epochs=args.epochs,
        lists_per_epoch=LISTS,
        lr=3e-5,
        patience=3,
        measure=MEASURE,
        validate_queries=args.validate_queries,
        seed=draw,
    )
    config = Config(
        CollectionSettings(str(split_of(source, size, draw, place))),
        FirstStageSettings(depth=100),
        EncoderSettings(args.encoder, max_doc_tokens=256),
        loss=LossSettings(args.loss),
        training=training,
        output=OutputSettings(str(place / "runs")),
    )
    (fold,) = train_folds(config).folds
    folder = CollectionFolder(place / "runs" / source.name)
    qrels, first = read_qrels(folder.qrels), read_run(folder.bm25_run())
    valid, run = read_run(fold.valid_run), read_run(fold.test_run)
    (split,) = read_folds(folder.folds)
    judged = {query: qrels[query] for query in split.test if qrels.get(query)}
    runs = {
        "BM25": {query: first.get(query, {}) for query in judged},
        "trained": run,
        "fused": fused_with(first, valid, run, qrels, MEASURE),
    }
    return {name: measured(judged, ranked, MEASURE) for name, ranked in runs.items()}


def row_of(size: int, draws: Sequence[dict[str, Values]]) -> list[str]:
    """A line of the table."""
    means = {name: mean_over_seeds([values[name] for values in draws]) for name in draws[0]}
    first = means.pop("BM25")
    row = [str(size), f"{fmean(first.values()):.4f}"]
    for values in means.values():
        mean, gain = fmean(values.values()), fmean(values.values()) - fmean(first.values())
        p = paired_test([values[query] for query in first], list(first.values()))
        row += [f"{mean:.4f}", f"{gain:+.4f}", f"{p:.4f}"]
    return row


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="a folder in BEIR's layout, with qrels/train.tsv and dev.tsv")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--loss", default="softmax")
    parser.add_argument("--sizes", nargs="+", type=int, default=[30, 100, 300, 1000])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--validate-queries", type=int, default=50)
    args = parser.parse_args()
    rows = [["queries", "BM25", "trained", "− BM25", "p", "fused", "− BM25", "p"]]
    for size in args.sizes:
        rows.append(row_of(size, [values_of(args.collection, size, draw, args) for draw in range(args.draws)]))
        print(
            f"{args.collection.name}, {args.loss}: {MEASURE}, mean of {args.draws} draws\n\n{aligned(rows)}\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
