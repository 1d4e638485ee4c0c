"""nDCG@20 of the default stages by the number of judged queries that they learn from.

    python -m scripts.paper.learning_curve cranfield cystic-fibrosis --encoder all-MiniLM-L6-v2 --folder curve

draws so many judged queries of each collection, a folder in BEIR's layout, fits the stages of `rerank fit` on them, and
measures each stage, and the one that these queries choose, on all other judged queries. A row has the mean over the
draws; `--figure FILE.svg` draws some of the columns. What is in the folder already is not fitted again.
"""

import argparse
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import rerank
from rerank.config import OutputSettings
from rerank.data.collections import open_collection
from rerank.data.types import Qrels
from rerank.evaluation.tables import aligned
from rerank.experiments.report.drawing import colour, draw_figure, save
from rerank.pipelines.folder import is_pipeline
from rerank.pipelines.record import read_evidence

MEASURE = "nDCG@20"
FEWEST_LEFT = 20
"""Judged queries that are left to measure on, at least."""
DRAWN = {"chosen": "rerank fit", "neighbours": "neighbours", "late": "late interaction", "bm25": "BM25"}
"""Column -> its label in the figure."""

Means = dict[int, dict[str, float]]
"""Number of judged queries -> column -> mean over the draws."""


def write_judgments(path: Path, qrels: Qrels) -> None:
    """Writes judgments in BEIR's layout."""
    lines = [f"{query}\t{document}\t{grade}" for query, of in qrels.items() for document, grade in of.items()]
    path.write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n", encoding="utf-8")


def write_split(source: Path, target: Path, qrels: Qrels, train: set[str]) -> None:
    """A copy of a collection in which some queries train and all others test."""
    (target / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        shutil.copy(source / name, target / name)
    write_judgments(target / "qrels" / "train.tsv", {query: of for query, of in qrels.items() if query in train})
    write_judgments(target / "qrels" / "test.tsv", {query: of for query, of in qrels.items() if query not in train})


def means_of(source: Path, size: int, draw: int, encoder: str, folder: Path) -> dict[str, float]:
    """Name of the stage -> its mean on the other queries; "chosen" is the stage that the drawn queries choose."""
    place = folder / f"{source.name}-{size}-{draw}"
    if not is_pipeline(place / "pipeline"):
        qrels = {query_id: of for query_id, of in open_collection(str(source)).qrels.items() if of}
        shutil.rmtree(place, ignore_errors=True)
        train = set(random.Random(draw).sample(sorted(qrels), size))
        write_split(source, place / source.name, qrels, train)  # of one name, so that all draws share the vectors
        config = rerank.Config(str(place / source.name), output=OutputSettings(str(folder / "runs")))
        rerank.fit(config, encoder=encoder, measure=MEASURE, out=place / "pipeline")
    evidence = read_evidence(place / "pipeline")
    return {row["name"]: row["mean"] for row in evidence["stages"]} | {"chosen": evidence["nested"]["mean"]}


def plot_means(axes: Any, means: Means, labels: Mapping[str, str]) -> None:
    """A line for each column of `labels`, which has their labels, over the number of queries."""
    for number, (column, label) in enumerate(labels.items()):
        values = [of_size[column] for of_size in means.values()]
        axes.plot(list(means), values, color=colour(number), marker=".", label=label)


def draw_curves(figure: Any, curves: dict[str, Means]) -> None:
    """A panel for each collection, with a line for each of DRAWN."""
    figure.set_size_inches(2.8 * len(curves), 2.8)
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axes, (name, means) in zip(panels, curves.items(), strict=True):
        plot_means(axes, means, DRAWN)
        axes.set_title(name)
        axes.set_xlabel("judged queries")
    panels[0].set_ylabel(MEASURE)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=len(DRAWN))


def main() -> None:
    """Prints a table for each collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path, help="folders in BEIR's layout")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--sizes", nargs="+", type=int, default=[10, 30, 60, 100, 200])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--figure", type=Path)
    args = parser.parse_args()
    curves: dict[str, Means] = {}
    for source in args.collections:
        judged = sum(bool(of) for of in open_collection(str(source)).qrels.values())
        curves[source.name] = {}
        for size in (size for size in args.sizes if size <= judged - FEWEST_LEFT):
            draws = [means_of(source, size, draw, args.encoder, args.folder) for draw in range(args.draws)]
            curves[source.name][size] = {name: fmean(means[name] for means in draws) for name in draws[0]}
        rows = [[str(size), *(f"{mean:.4f}" for mean in of.values())] for size, of in curves[source.name].items()]
        heads = ["queries", *next(iter(curves[source.name].values()))]
        print(f"{source.name}: {MEASURE}, mean of {args.draws} draws\n\n{aligned([heads, *rows])}\n", flush=True)
    if args.figure:
        save(draw_figure(draw_curves, curves), args.figure)


if __name__ == "__main__":
    main()
