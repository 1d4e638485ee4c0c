"""How the votes of `similar-queries` may fall with the cosine, on queries like the judged ones and on new topics.

    python -m scripts.paper.votes cranfield time --encoder all-MiniLM-L6-v2 --folder fits

ranks each collection, a folder in BEIR's layout, by the default stages up to `neighbours` as they are without
judgments, and by `similar-queries` above it with each vote. A row has the gain over `neighbours`, with the p-value of
a paired t-test over the queries: by the mean of several sets of parts that are drawn at random, and by parts of which
no query resembles one of another part (scripts/paper/text_parts.py). Of a published split the validation queries are
taken. What is in the folder is not fitted again.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from rerank.evaluation.evaluate import values_of
from rerank.evaluation.significance import paired_test
from rerank.evaluation.tables import aligned
from rerank.evaluation.weights import MEASURE
from rerank.pipelines.defaults import default_stages
from rerank.pipelines.graph import prefix
from rerank.pipelines.stages import SimilarQueriesStage
from rerank.pipelines.stages.base import Stage
from scripts.paper.text_parts import Opened, grouped_interval, pack

BASE = "neighbours"
POWERS = (4, 8, 12, 16)
"""The powers of the cosine that are compared."""


@dataclass(frozen=True)
class PowerVotes(SimilarQueriesStage):
    """Votes with a power of the cosine."""

    power: int = 8

    def vote(self, cosines: np.ndarray) -> np.ndarray:
        votes: np.ndarray = np.maximum(cosines, 0.0) ** self.power
        return votes


@dataclass(frozen=True)
class SquaredVotes(SimilarQueriesStage):
    """Votes with the square of what the cosine is above a threshold; nothing below it."""

    threshold: float = 0.4

    def vote(self, cosines: np.ndarray) -> np.ndarray:
        votes: np.ndarray = (np.maximum(cosines - self.threshold, 0.0) / (1 - self.threshold)) ** 2
        return votes


def votes_of(encoder: str) -> dict[str, Stage]:
    """The votes that are compared, by name."""
    powers: dict[str, Stage] = {f"cos{power}": PowerVotes(BASE, encoder, power=power) for power in POWERS}
    return powers | {"squared": SquaredVotes(BASE, encoder)}


def stages_below(encoder: str, documents: int) -> dict[str, Stage]:
    """The default stages up to `neighbours`, which learn nothing, so that all sets of parts share their rankings."""
    stages = prefix(default_stages(encoder, "", documents), BASE)
    return {
        name: settings.unlearned() if hasattr(settings, "unlearned") else settings for name, settings in stages.items()
    }


def compare(source: Path, encoder: str, folder: Path, sets: int) -> list[list[str]]:
    """The rows of a collection."""
    opened = Opened.of(source, folder)
    under = stages_below(encoder, opened.world.texts.count())
    groups = opened.groups()
    cuts = {f"random-{seed}": opened.random_parts(seed) for seed in range(sets)} | {"text": pack(groups)}

    def gains(vote: Stage, name: str, cut: str) -> list[float]:
        """The gain of a vote on `neighbours` by query, in the order of the queries."""
        fitting = opened.fitting({**under, f"{name}-{cut}": vote}, cuts[cut], "votes")
        rankings = [(part, frozenset({part})) for part in cuts[cut]]
        runs = fitting.runs(f"{name}-{cut}", rankings), fitting.runs(BASE, rankings)
        qrels = opened.world.collection.qrels
        own, base = (values_of(run, qrels, list(opened.queries), MEASURE) for run in runs)
        return [own[query_id] - base[query_id] for query_id in opened.queries]

    rows = [["vote", "random parts", "p", "each set", "parts by text", "interval", "p"]]
    for name, vote in votes_of(encoder).items():
        of_sets = [gains(vote, name, cut) for cut in cuts if cut != "text"]
        mean, text = [fmean(of_query) for of_query in zip(*of_sets, strict=True)], gains(vote, name, "text")
        low, high = grouped_interval(dict(zip(opened.queries, text, strict=True)), groups)
        p, p_text = (f"{paired_test(of, [0.0] * len(of)):.3f}" for of in (mean, text))
        each = " ".join(f"{fmean(of):+.4f}" for of in of_sets)
        interval = f"[{low:+.4f}, {high:+.4f}]"
        rows.append([name, f"{fmean(mean):+.4f}", p, each, f"{fmean(text):+.4f}", interval, p_text])
    return rows


def main() -> None:
    """Prints a table for each collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path, help="folders in BEIR's layout")
    parser.add_argument("--encoder", required=True, help="a bi-encoder of sentence-transformers")
    parser.add_argument("--folder", type=Path, required=True, help="what is fitted, and the index and the vectors")
    parser.add_argument("--sets", type=int, default=5, help="ways to draw parts at random [default: 5]")
    args = parser.parse_args()
    for source in args.collections:
        rows = compare(source, args.encoder, args.folder, args.sets)
        print(f"{source.name}: gain in {MEASURE} on {BASE}\n\n{aligned(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
