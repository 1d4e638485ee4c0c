"""Losses compared on the last stage of `rerank fit`, a learned combination of the scores of all stages.

    python -m scripts.paper.combiner cranfield time --encoder all-MiniLM-L6-v2 --folder fits

The stage `features` adds a weighted sum of the stages' scores, standardised by query, to that of the last one; its
weights are 0 at first. A row has, for a loss and a number of documents of a query, the mean of five parts and some
seeds, which order the queries, and the p-value of a paired t-test against the last stage below; the share of the
absolute gradient that the first 20 documents have at the start; the cosine of the first step with the one that raises
all weights alike, which changes the scale of the scores and not their order; and what a first step of length 0.3 adds
to the mean. A row "chosen" takes, for each part, the hyperparameters and the number of documents that are best on the
other parts, with weights that learned from neither. What is in the folder is not fitted again.
"""

import argparse
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch

from rerank.config import CollectionSettings, Config, LossSettings, OutputSettings
from rerank.data.candidates import select_candidates
from rerank.data.folds import make_folds
from rerank.data.types import Judgments, Run
from rerank.evaluation.evaluate import values_of
from rerank.evaluation.significance import paired_test
from rerank.evaluation.tables import aligned
from rerank.losses.registry import create
from rerank.pipelines.crossfit import CrossFitting
from rerank.pipelines.defaults import default_stages
from rerank.pipelines.stages import FeaturesStage
from rerank.pipelines.stages.features import FeaturesRanker, columns_of
from rerank.pipelines.stages.world import World

MEASURE = "nDCG@20"
TOP = 20  # the first documents, whose share of the gradient is shown
DEPTH = 100  # documents of a query
STEP = 0.3  # length of the first step
LOSSES = (
    LossSettings("smoothi", {"alpha": 1.0}),
    LossSettings("smoothi", {"alpha": 10.0}),
    LossSettings("smoothi", {"alpha": 100.0}),
    LossSettings("hinge"),
    LossSettings("softmax"),
    LossSettings("lambda_loss"),
)


def first_step(runs: Sequence[Run], qrels: Judgments, settings: LossSettings, depth: int) -> tuple[float, torch.Tensor]:
    """The first documents' share of the absolute gradient, and the (weights,) step, of length 1."""
    shares, step = [], torch.zeros(len(runs) - 1)
    loss = create(settings.name, **settings.hyperparameters)
    for found in select_candidates(runs[-1], qrels, depth, keep_scores=True).values():
        if any(found.labels):
            scores = torch.tensor([found.first_scores], requires_grad=True)
            value = loss(scores, torch.tensor([found.labels]).float(), torch.ones_like(scores, dtype=torch.bool))
            ((slopes,),) = torch.autograd.grad(value.sum(), [scores])
            step = step - slopes @ torch.from_numpy(columns_of(runs[:-1], found))
            if total := float(slopes.abs().sum()):
                shares.append(float(slopes[:TOP].abs().sum()) / total)
    return fmean(shares), torch.nn.functional.normalize(step, dim=0)


def compare(source: Path, encoder: str, folder: Path, depths: Sequence[int], seeds: int) -> list[list[str]]:
    """The rows of a collection."""
    config = Config(collection=CollectionSettings(str(source)), output=OutputSettings(str(folder / "runs")))
    world = World.open(config)
    collection = world.collection
    judged = [query_id for query_id in collection.queries if collection.qrels.get(query_id)]
    parts = {fold.name: fold.test for fold in make_folds(judged, 5)}
    stages = default_stages(encoder, "", world.texts.count())
    stages.pop("combined", None)
    queries = {query_id: collection.queries[query_id] for query_id in judged}
    fitting = CrossFitting(stages, world.knowing(queries), parts, queries, folder / f"{source.name}-fits")
    fitting.fit_all(fitting.fits(parts))

    def run_of(fitting: CrossFitting, name: str) -> Run:
        return fitting.runs(name, [(part, frozenset({part})) for part in parts])

    def chosen_run(fitting: CrossFitting, names: Sequence[str]) -> Run:
        run: Run = {}
        for part in parts:
            others = [(one, frozenset({part, one})) for one in parts if one != part]
            means = {name: fmean(values(fitting.runs(name, others))) for name in names}
            run |= fitting.run(max(means, key=means.__getitem__), part, frozenset({part}))
        return run

    def values(run: Run) -> list[float]:
        return list(values_of(run, collection.qrels, judged, MEASURE).values())

    below = [run_of(fitting, name) for name in stages]
    base = values(below[-1])
    rows = [["loss", "depth", MEASURE, "p", f"gradient of 1-{TOP}", "cosine with scale", "first step"]]
    rows.append(["none", "", f"{fmean(base):.4f}", *[""] * 4])

    def add_row(title: str, depth: str, runs: Iterable[Run], *step: str) -> None:
        means = [fmean(of_query) for of_query in zip(*map(values, runs), strict=True)]
        rows.append(
            [title, depth, f"{fmean(means):.4f}", f"{paired_test(means, base):.3f}", *step, *[""] * (3 - len(step))]
        )

    tried = list(itertools.product(LOSSES, depths))
    fittings = []
    for seed in range(seeds):
        named = {f"{title_of(loss)}-{depth}-{seed}".replace(" ", "-"): (loss, depth) for loss, depth in tried}
        combined = {name: FeaturesStage(tuple(stages), depth=depth, loss=loss) for name, (loss, depth) in named.items()}
        seeded = fitting.world.changed(config=replace(config, training=replace(config.training, seed=seed)))
        fittings.append((replace(fitting, stages={**stages, **combined}, world=seeded), list(combined)))
    for number, (loss, depth) in enumerate(tried):
        share, step = first_step(below, collection.qrels, loss, depth)
        cosine = float(step.sum()) / len(step) ** 0.5
        stepped = FeaturesRanker(FeaturesStage(tuple(stages), depth=depth), (STEP * step).tolist()).rank(queries, below)
        gain = fmean(values(stepped)) - fmean(base)
        runs = (run_of(of_seed, names[number]) for of_seed, names in fittings)
        add_row(title_of(loss), str(depth), runs, f"{share:.2f}", f"{cosine:+.2f}", f"{gain:+.4f}")
    for kind, group in itertools.groupby(range(len(tried)), lambda number: tried[number][0].name):
        numbers = list(group)
        runs = (chosen_run(of_seed, [names[number] for number in numbers]) for of_seed, names in fittings)
        if len(numbers) > 1:
            add_row(f"{kind}, chosen", "", runs)
    return rows


def title_of(loss: LossSettings) -> str:
    """The name and the hyperparameters of a loss."""
    return " ".join([loss.name, *(f"{key}={value:g}" for key, value in loss.hyperparameters.items())])


def main() -> None:
    """Prints a table for each collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path, help="folders in BEIR's layout")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--depths", nargs="+", type=int, default=[TOP, DEPTH])
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    for source in args.collections:
        rows = compare(source, args.encoder, args.folder, args.depths, args.seeds)
        print(f"{source.name}: {MEASURE} by the loss of a combination\n\n{aligned(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
