"""Losses compared on a linear combiner of the scores of the stages of `rerank fit`.

    python -m scripts.paper.combiner cranfield time --encoder all-MiniLM-L6-v2 --folder fits

The combiner adds a weighted sum of the stages' scores, standardised by query, to that of the last stage. Its weights
are 0 at first. In each of five parts it learns from rankings of stages that saw neither these queries nor the part, as
a stage of a pipeline does. A row has, for a loss and a depth of the lists that it sees, the mean over three seeds,
which order the queries, and the p-value of a paired t-test against the last stage; the share of the absolute gradient
that the first 20 documents have at the start; and the cosine of the first step with the one that raises all weights
alike, which changes the scale of the scores and not their order.
"""

import argparse
import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Tensor

from rerank.config import CollectionSettings, Config, OutputSettings
from rerank.data.candidates import standardised
from rerank.data.folds import make_folds
from rerank.data.trec import ranked
from rerank.data.types import Run
from rerank.evaluation.evaluate import values_of
from rerank.evaluation.significance import paired_test
from rerank.evaluation.tables.table import aligned
from rerank.losses.registry import create
from rerank.pipelines.crossfit import CrossFitting
from rerank.pipelines.defaults import default_stages
from rerank.pipelines.graph import in_order
from rerank.stages.world import World

MEASURE, TOP, DEPTH = "nDCG@20", 20, 100
LOSSES = (
    ("smoothi", {"alpha": 1.0}),
    ("smoothi", {"alpha": 10.0}),
    ("hinge", {}),
    ("softmax", {}),
    ("lambda_loss", {}),
)
SEEDS, EPOCHS, BATCH, RATE = 3, 15, 8, 0.02


class Query(NamedTuple):
    """The candidates of a query: (documents, stages) standardised scores, (documents,) labels and last scores."""

    query_id: str
    doc_ids: list[str]
    scores: Tensor
    labels: Tensor
    last: Tensor


def queries_of(fitting: CrossFitting, part: str, without: frozenset[str]) -> list[Query]:
    """The queries of a part, ranked by stages that were fitted without some parts."""
    runs = {name: fitting.run(name, part, without) for name in fitting.stages}
    *names, last = runs
    found = []
    for query_id in fitting.parts[part]:
        if not runs[last].get(query_id):
            continue
        doc_ids = ranked(runs[last][query_id])[:DEPTH]
        columns = []
        for name in (*names, last):
            of = runs[name].get(query_id, {})
            least = min(of.values(), default=0.0)
            columns.append(standardised([of.get(doc_id, least) for doc_id in doc_ids]))
        grades = fitting.world.collection.qrels[query_id]
        labels = torch.tensor([float(max(0, grades.get(doc_id, 0))) for doc_id in doc_ids])
        scores = torch.tensor(columns).T
        found.append(Query(query_id, doc_ids, scores[:, :-1], labels, scores[:, -1]))
    return found


def losses_of(queries: Iterable[Query], weights: Tensor, loss: str, settings: dict, depth: int) -> list[Tensor]:
    """The loss of each query that has a relevant document among the first ones."""
    values, function = [], create(loss, **settings)
    for query in queries:
        scores, labels = (query.last + query.scores @ weights)[:depth], query.labels[:depth]
        if labels.any():
            values.append(function(scores[None], labels[None], torch.ones(1, len(scores), dtype=torch.bool)).sum())
    return values


def trained(queries: Sequence[Query], loss: str, settings: dict, depth: int, seed: int) -> Tensor:
    """(stages,) weights after Adam, which draws the queries in an order that the seed decides."""
    weights = torch.zeros(queries[0].scores.shape[1], requires_grad=True)
    optimizer, order, generator = torch.optim.Adam([weights], lr=RATE), list(queries), random.Random(seed)
    for _ in range(EPOCHS):
        generator.shuffle(order)
        for start in range(0, len(order), BATCH):
            if values := losses_of(order[start : start + BATCH], weights, loss, settings, depth):
                optimizer.zero_grad()
                torch.stack(values).mean().backward()
                optimizer.step()
    return weights.detach()


def run_of(queries: Iterable[Query], weights: Tensor) -> Run:
    """The ranking of the last stage and the weighted stages."""
    return {q.query_id: dict(zip(q.doc_ids, (q.last + q.scores @ weights).tolist(), strict=True)) for q in queries}


def first_step(queries: Iterable[Query], loss: str, settings: dict, depth: int) -> tuple[float, float]:
    """The first documents' share of the absolute gradient, and the cosine of the step with equal weights."""
    shares, step = [], torch.zeros(0)
    for query in queries:
        moved = query._replace(last=query.last.clone().requires_grad_())
        for value in losses_of([moved], torch.zeros(query.scores.shape[1]), loss, settings, depth):
            (slopes,) = torch.autograd.grad(value, [moved.last])
            step = (step if len(step) else torch.zeros(query.scores.shape[1])) - slopes @ query.scores
            if total := float(slopes.abs().sum()):
                shares.append(float(slopes[:TOP].abs().sum()) / total)
    return fmean(shares), float(torch.nn.functional.cosine_similarity(step, torch.ones(len(step)), dim=0))


def compare(source: Path, encoder: str, folder: Path, depths: Sequence[int]) -> list[list[str]]:
    """The rows of a collection."""
    config = Config(collection=CollectionSettings(str(source)), output=OutputSettings(str(folder / "runs")))
    world = World.open(config)
    collection = world.collection
    judged = [query_id for query_id in collection.queries if collection.qrels.get(query_id)]
    parts = {fold.name: fold.test for fold in make_folds(judged, 5)}
    stages = in_order(default_stages(encoder, "", world.texts.count()))
    queries = {query_id: collection.queries[query_id] for query_id in judged}
    fitting = CrossFitting(stages, world.knowing(queries), parts, queries, folder / f"{source.name}-fits")
    fitting.fit_all(parts)
    tested = {part: queries_of(fitting, part, frozenset({part})) for part in parts}
    taught = {
        part: [query for one in parts if one != part for query in queries_of(fitting, one, frozenset({part, one}))]
        for part in parts
    }

    def values(weights: Mapping[str, Tensor]) -> list[float]:
        run = {q: of for part, queries in tested.items() for q, of in run_of(queries, weights[part]).items()}
        return list(values_of(run, collection.qrels, judged, MEASURE).values())

    base = values(dict.fromkeys(parts, torch.zeros(len(stages) - 1)))
    rows = [["loss", "depth", MEASURE, "p", f"gradient of 1-{TOP}", "cosine with scale"]]
    rows.append(["none", "", f"{fmean(base):.4f}", "", "", ""])
    for (loss, settings), depth in itertools.product(LOSSES, depths):
        each = [
            values({part: trained(of, loss, settings, depth, seed) for part, of in taught.items()})
            for seed in range(SEEDS)
        ]
        means = [fmean(of_query) for of_query in zip(*each, strict=True)]
        share, cosine = first_step([query for of in tested.values() for query in of], loss, settings, depth)
        name = " ".join([loss, *(f"{key}={value:g}" for key, value in settings.items())])
        p = paired_test(means, base)
        rows.append([name, str(depth), f"{fmean(means):.4f}", f"{p:.3f}", f"{share:.2f}", f"{cosine:+.2f}"])
    return rows


def main() -> None:
    """Prints a table for each collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path, help="folders in BEIR's layout")
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--depths", nargs="+", type=int, default=[TOP, DEPTH])
    args = parser.parse_args()
    for source in args.collections:
        rows = compare(source, args.encoder, args.folder, args.depths)
        print(f"{source.name}: {MEASURE} by the loss of a combiner\n\n{aligned(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
