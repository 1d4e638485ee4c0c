"""nDCG@10 of a fine-tuned cross-encoder by the number of training queries of a collection with a published split.

    python -m scripts.paper.training_curve nfcorpus --encoder all-MiniLM-L6-v2 --folder curve

draws so many training queries, trains on them with the settings of Table 4, and measures the test queries: BM25's top
100, the trained model's order of them, and the two fused; `rerank fit` without a cross-encoder on the same queries, and
the trained model fused with it. Validation queries choose the epoch and the weights of both fusions; a sample of them
is used, as they take longer than the training. A column has the means over the draws; a gain has the p-value of a
paired t-test over the queries, whose values are means over the draws. What is in the folder already is not made again;
`--figure FILE.svg` draws the means.
"""

import argparse
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import rerank
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
from rerank.data.types import Qrels, Run
from rerank.evaluation.significance import paired_test
from rerank.evaluation.tables import aligned
from rerank.experiments.report.drawing import draw_figure, save
from rerank.experiments.runs.experiment_results import ExperimentResults
from rerank.experiments.runs.layout import ExperimentFolder
from rerank.experiments.train import train_folds
from rerank.pipelines.folder import RUNS
from scripts.paper.learning_curve import Means, plot_means, write_judgments
from scripts.paper.table4 import Values, fused_with, mean_over_seeds, measured

MEASURE = "nDCG@10"
LISTS = 256
"""Training lists of an epoch, the paper's number, for each number of queries: a list has two relevant documents."""

GAINS = (
    ("trained", "BM25"),
    ("trained + BM25", "BM25"),
    ("rerank fit", "BM25"),
    ("trained + fit", "rerank fit"),
)
"""A ranking, and the one that it is compared with."""


def split_of(source: Path, size: int, draw: int, target: Path, dev: bool = True) -> Path:
    """A copy of a collection, of its name, in which `size` of the training queries are left; written once.

    Without `dev` its validation queries are test queries too.
    """
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
        if not dev:
            (partial / "qrels/dev.tsv").unlink()
            write_judgments(partial / "qrels/test.tsv", {query: qrels[query] for query in (*split.valid, *split.test)})
        partial.rename(copy)
    return copy


def fitted_run(source: Path, size: int, draw: int, args: argparse.Namespace) -> Run:
    """The validation and test queries by the stage that `rerank fit` chooses; it learns from the drawn ones only."""
    place = args.folder / f"{size}-{draw}"
    copy = split_of(source, size, draw, place / "fit", dev=False)  # of one name, so that all draws share the vectors
    config = Config(CollectionSettings(str(copy)), output=OutputSettings(str(args.folder / "runs")))
    pipeline = rerank.fit(config, encoder=args.encoder, measure=MEASURE, out=place / "pipeline")
    return read_run(place / "pipeline" / RUNS / f"{pipeline.answer}.run")


def settings_of(copy: Path, folder: Path, args: argparse.Namespace, seed: int = 0) -> Config:
    """How a model is trained on a collection; results are written below `folder`."""
    training = TrainingSettings(
        epochs=args.epochs,
        lists_per_epoch=LISTS,
        lr=3e-5,
        patience=3,
        measure=MEASURE,
        validate_queries=args.validate_queries,
        seed=seed,
    )
    return Config(
        CollectionSettings(str(copy)),
        FirstStageSettings(depth=100),
        EncoderSettings(args.encoder, max_doc_tokens=256),
        loss=LossSettings(args.loss),
        training=training,
        output=OutputSettings(str(folder / "runs")),
    )


@dataclass(frozen=True)
class Trained:
    """The rankings of a trained model, and of the first stage that it re-ranks.

    `tested` are the judged test queries, also those without a candidate, and `qrels` has their judgments too.
    """

    qrels: Qrels
    tested: tuple[str, ...]
    first: Run
    valid: Run
    test: Run

    @classmethod
    def of(cls, folder: ExperimentFolder) -> "Trained":
        """The only fold of an experiment; the judgments are those of its test and validation queries."""
        results, collection = ExperimentResults(folder), folder.collection
        (fold,) = folder.folds
        (split,) = read_folds(collection.folds)
        qrels = read_qrels(collection.qrels)
        kept = {query: qrels[query] for query in (*split.valid, *split.test) if qrels.get(query)}
        tested = tuple(query for query in split.test if query in kept)
        return cls(kept, tested, read_run(results.first_stage_file), read_run(fold.valid_run), read_run(fold.test_run))

    def fused_with(self, run: Run) -> Run:
        """The test queries by the model and a run, with weights that the validation queries choose."""
        return fused_with(run, self.valid, self.test, self.qrels, MEASURE)

    def values(self, run: Run) -> Values:
        """The value of each judged test query."""
        judged = {query: self.qrels[query] for query in self.tested}
        return measured(judged, {query: run.get(query, {}) for query in judged}, MEASURE)


def values_of(source: Path, size: int, draw: int, args: argparse.Namespace) -> dict[str, Values]:
    """Name of a ranking -> the values of the test queries."""
    place = args.folder / f"{size}-{draw}"
    config = settings_of(split_of(source, size, draw, place), place, args, seed=draw)
    trained = Trained.of(train_folds(config))
    fitted = fitted_run(source, size, draw, args)
    runs = {
        "BM25": trained.first,
        "trained": trained.test,
        "trained + BM25": trained.fused_with(trained.first),
        "rerank fit": fitted,
        "trained + fit": trained.fused_with(fitted),
    }
    return {name: trained.values(run) for name, run in runs.items()}


def row_of(size: int, values: dict[str, Values]) -> list[str]:
    """A line of the table."""
    row = [str(size), f"{fmean(values['BM25'].values()):.4f}"]
    for name, base in GAINS:
        gains = [values[name][query] - values[base][query] for query in values[base]]
        p = paired_test(list(values[name].values()), list(values[base].values()))
        row += [f"{fmean(values[name].values()):.4f}", f"{fmean(gains):+.4f}", f"{p:.4f}"]
    return row


def draw_curve(figure: Any, means: Means) -> None:
    """A line for each ranking over the number of training queries."""
    figure.set_size_inches(4.6, 3.2)
    axes = figure.subplots()
    plot_means(axes, means, {name: name for of_size in means.values() for name in of_size})
    axes.set_xscale("log")
    axes.set_xticks(list(means), [str(size) for size in means])
    axes.minorticks_off()
    axes.set_xlabel("training queries")
    axes.set_ylabel(MEASURE)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """The arguments of `settings_of`, the collection and the folder."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="a folder in BEIR's layout, with qrels/train.tsv and dev.tsv")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--loss", default="softmax")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--validate-queries", type=int, default=50)
    return parser


def main() -> None:
    """Prints the table."""
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[30, 100, 300, 1000])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    rows = [["queries", "BM25", *(head for name, base in GAINS for head in (name, f"− {base}", "p"))]]
    means: Means = {}
    for size in args.sizes:
        draws = [values_of(args.collection, size, draw, args) for draw in range(args.draws)]
        values = {name: mean_over_seeds([of[name] for of in draws]) for name in draws[0]}
        means[size] = {name: fmean(of.values()) for name, of in values.items()}
        rows.append(row_of(size, values))
        print(
            f"{args.collection.name}, {args.loss}: {MEASURE}, mean of {args.draws} draws\n\n{aligned(rows)}\n",
            flush=True,
        )
    if args.figure:
        save(draw_figure(draw_curve, means), args.figure)


if __name__ == "__main__":
    main()
