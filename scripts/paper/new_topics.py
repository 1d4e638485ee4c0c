"""What `rerank fit` is worth for queries like the judged ones, and for queries on new topics.

    python -m scripts.paper.new_topics cranfield time --encoder all-MiniLM-L6-v2 --folder fits

fits a pipeline on each collection, a folder in BEIR's layout, as `rerank fit` does, over parts that are drawn at
random; and cross-validates the same stages over parts of which no query resembles one of another part. For these,
queries are grouped by the tf-idf cosines of their words: the nearest pairs are joined first, up to a tenth of the
queries in a group, and the groups are packed into five parts (scripts/paper/text_parts.py).

A table of each collection has a row for each stage: its mean and its gain over the best stage below. The last table
has BM25, `nested` with its gain over BM25, and the gain of `nested` over `neighbours`, which is what is learned from
judgments above them; p is that of the difference between the two ways to cut. Tests are paired t-tests over the
queries; intervals draw whole groups (bootstrap). What is in the folder is not fitted again; its subfolders have the
pipelines that `rerank fit` wrote.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import rerank
from rerank.config import Config
from rerank.evaluation.significance import paired_test
from rerank.evaluation.tables import aligned
from rerank.evaluation.weights import MEASURE, Values
from rerank.pipelines.defaults import default_stages
from rerank.pipelines.record import read_evidence
from rerank.pipelines.selection import select
from rerank.pipelines.stages.base import Stage, below
from scripts.paper.text_parts import Groups, Opened, grouped_interval, pack

FIRST = "bm25"
BASE = "neighbours"
NESTED = "nested"
HEAD = (
    "collection",
    "BM25",
    "nested, random parts",
    "nested, parts by text",
    "p",
    "learned, random",
    "learned, by text",
)
STAGE_HEAD = ("stage", "random", "gain", "p", "by text", "gain", "interval", "p")


def by_random_parts(config: Config, encoder: str, place: Path) -> dict[str, Values]:
    """The values of each stage and of `nested` by query, as `rerank fit` measures them; the pipeline is in `place`."""
    rerank.fit(config, encoder=encoder, measure=MEASURE, out=place)
    values: dict[str, Values] = read_evidence(place)["values"]
    return values


def by_text_parts(opened: Opened, stages: Mapping[str, Stage], groups: Groups) -> dict[str, Values]:
    """The values of each stage and of `nested` by query, cross-validated over parts by text."""
    parts = pack(groups)
    selected = select(opened.fitting(stages, parts, "text"), list(parts), list(stages), MEASURE)
    return {**selected.values, NESTED: selected.nested}


def difference(first: Values, second: Values) -> dict[str, float]:
    """The differences of two stages by query."""
    return {query_id: first[query_id] - second[query_id] for query_id in first}


def tested(differences: Mapping[str, float], groups: Groups) -> tuple[str, str, str]:
    """The mean difference, its interval and its p-value."""
    low, high = grouped_interval(differences, groups)
    p = paired_test(list(differences.values()), [0.0] * len(differences))
    return f"{fmean(differences.values()):+.4f}", f"[{low:+.4f}, {high:+.4f}]", f"{p:.4f}"


def stage_rows(
    stages: Mapping[str, Stage], of_random: Mapping[str, Values], by_text: Mapping[str, Values], groups: Groups
) -> list[Sequence[str]]:
    """A row for each stage, and for `nested`, whose gain is that over BM25."""
    rows: list[Sequence[str]] = [STAGE_HEAD]
    under = {name: below(settings) for name, settings in stages.items()} | {NESTED: (FIRST,)}
    for name, names in under.items():
        row = [name]
        for values in (of_random, by_text):
            row.append(f"{fmean(values[name].values()):.4f}")
            if not names:
                row += [""] * (2 if values is of_random else 3)
                continue
            best = max(names, key=lambda one: fmean(values[one].values()))
            gain, interval, p = tested(difference(values[name], values[best]), groups)
            row += [gain, p] if values is of_random else [gain, interval, p]
        rows.append(row)
    return rows


def summary(name: str, of_random: Mapping[str, Values], by_text: Mapping[str, Values], groups: Groups) -> list[str]:
    """The row of a collection."""
    row = [name, f"{fmean(of_random[FIRST].values()):.4f}"]
    for values in (of_random, by_text):
        gain, interval, _ = tested(difference(values[NESTED], values[FIRST]), groups)
        row.append(f"{fmean(values[NESTED].values()):.4f} ({gain} {interval})")
    row.append(tested(difference(by_text[NESTED], of_random[NESTED]), groups)[2])
    for values in (of_random, by_text):
        gain, interval, _ = tested(difference(values[NESTED], values[BASE]), groups)
        row.append(f"{gain} {interval}")
    return row


def main() -> None:
    """Prints a table for each collection, and one of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path, help="folders in BEIR's layout")
    parser.add_argument("--encoder", required=True, help="a bi-encoder of sentence-transformers, or none")
    parser.add_argument("--folder", type=Path, required=True, help="what is fitted, and the index and the vectors")
    args = parser.parse_args()
    rows: list[Sequence[str]] = [HEAD]
    for source in args.collections:
        opened = Opened.of(source, args.folder)
        if opened.world.collection.folds:
            sys.exit(f"{source}: has folds of its own, which `rerank fit` takes; expected a collection without any")
        stages = default_stages(args.encoder, "", opened.world.texts.count())
        groups = opened.groups()
        of_random = by_random_parts(opened.world.config, args.encoder, opened.folder / "pipeline")
        by_text = by_text_parts(opened, stages, groups)
        several = sum(len(group) for group in groups if len(group) > 1)
        print(f"{source.name}: {len(opened.queries)} queries, {several} of them in groups of several; {MEASURE}\n")
        print(f"{aligned(stage_rows(stages, of_random, by_text, groups))}\n", flush=True)
        rows.append(summary(source.name, of_random, by_text, groups))
    print(aligned(rows))


if __name__ == "__main__":
    main()
