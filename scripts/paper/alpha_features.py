"""Compares SmoothI's alphas and their variants on a feature set, for several sizes of the training lists.

    python -m scripts.paper.alpha_features MQ2008 alpha.jsonl

For each arm, size, seed and fold a network is trained on lists that are drawn anew in each epoch, with NDCG of the
whole list as the metric. The epoch with the best NDCG@10 (gain 2^y - 1) on the validation queries is kept, and a line
with its test values is added to the file. Lines that the file has are not made again. The table at the end takes each
family's alpha, for every fold and seed, from the validation queries.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rerank.batches.features import Vectors, make_grid, rows_of, vectors
from rerank.data.letor.feature_set import FeatureSet
from rerank.data.letor.layouts import fold_names, open_fold
from rerank.losses import create, exact_metric
from rerank.models.feature_mlp import FeatureMLP
from rerank.utils.errors import UserError
from rerank.utils.progress import log_to_terminal, progress
from scripts.paper import alpha_variants
from scripts.paper.alpha_tables import Row, read_rows, table

ALPHAS = (1.0, 3.0, 6.0, 10.0, 30.0)
FAMILIES = ("smoothi", "smoothi_bounded", "smoothi_relative", "smoothi_scale_free")
SIZES = {"4": (2, 2), "6": (2, 4), "16": (4, 12), "all": None}
"""Relevant and other documents of a training list."""

HIDDEN = 256
EPOCHS = 15
LISTS_PER_STEP = 64
RATE = 1e-3
MEASURE = "ndcg@10"


class Documents(NamedTuple):
    """A part of a fold: vectors (documents, features), and grids (queries, documents) of labels, mask and rows."""

    vectors: Tensor
    labels: Tensor
    mask: Tensor
    rows: Tensor
    query_ids: tuple[str, ...]


def read_part(features: FeatureSet) -> Documents:
    """All queries of a set."""
    rows = rows_of(features, range(len(features.query_ids)))
    labels, mask = make_grid(features, rows, features.stops - features.starts)
    places = torch.zeros(mask.shape, dtype=torch.long)
    places[mask] = torch.arange(len(rows))
    return Documents(vectors(features, rows), labels, mask, places, features.query_ids)


def draw(part: Documents, queries: Tensor, size: tuple[int, int] | None, generator: torch.Generator) -> Documents:
    """Training lists of these queries: all documents, or up to so many relevant and other ones."""
    labels, mask, rows = part.labels[queries], part.mask[queries], part.rows[queries]
    if size is None:
        columns = torch.arange(int(mask.sum(dim=1).max())).expand(len(queries), -1)
        real = mask[:, : columns.shape[1]]
    else:
        keys = torch.rand(mask.shape, generator=generator)
        groups = (mask & (labels >= 1), mask & (labels < 1))
        drawn = [keys.masked_fill(~group, -1).topk(n, dim=1) for group, n in zip(groups, size, strict=True)]
        columns = torch.cat([top.indices for top in drawn], dim=1)
        real = torch.cat([top.values for top in drawn], dim=1) >= 0
    return Documents(part.vectors, labels.gather(1, columns), real, rows.gather(1, columns), ())


def score(model: FeatureMLP, part: Documents) -> Tensor:
    """(queries, documents) scores, 0 on padding."""
    model.eval()
    with torch.inference_mode():
        return grid_of(part, model(Vectors(part.vectors[part.rows[part.mask]])))


def grid_of(part: Documents, flat: Tensor) -> Tensor:
    """The scores of the real documents on the grid."""
    return torch.zeros(part.mask.shape).masked_scatter(part.mask, flat)


def train(fold: dict[str, Documents], loss: Any, size: tuple[int, int] | None, seed: int) -> tuple[int, float, Tensor]:
    """The best epoch, its mean over the validation queries, and the values of the test queries."""
    alpha_variants.restart()
    train, valid, test = fold["train"], fold["valid"], fold["test"]
    generator = torch.Generator().manual_seed(seed)
    model = FeatureMLP(train.vectors.shape[1], HIDDEN, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    useful = ((train.labels >= 1) & train.mask).any(dim=1).nonzero()[:, 0]
    best = (0, -1.0, torch.zeros(0))
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for queries in useful[torch.randperm(len(useful), generator=generator)].split(LISTS_PER_STEP):
            lists = draw(train, queries, size, generator)
            optimizer.zero_grad()
            scores = grid_of(lists, model(Vectors(lists.vectors[lists.rows[lists.mask]])))
            loss(scores, lists.labels, lists.mask).mean().backward()
            optimizer.step()
        mean = exact_metric(score(model, valid), valid.labels, valid.mask, MEASURE).mean().item()
        if mean > best[1]:
            best = epoch, mean, exact_metric(score(model, test), test.labels, test.mask, MEASURE)
    return best


def arms() -> dict[str, tuple[str, dict[str, Any]]]:
    """The loss and its hyperparameters of each arm; the name is FAMILY or FAMILY=ALPHA."""
    named = {f"{family}={a:g}": (family, {"alpha": a}) for family, a in product(FAMILIES, ALPHAS)}
    lists = EPOCHS * 300  # about the trainable queries of a fold of MQ2008
    for a in (10.0, 30.0):
        named[f"smoothi_annealed={a:g}"] = "smoothi_annealed", {"alpha": a, "lists": lists}
    return named | {name: (name, {}) for name in ("hinge", "lambda_loss", "neural_ndcg", "pirank")}


def make_rows(source: str, out: Path, names: list[str], sizes: list[str], seeds: list[int]) -> Iterator[None]:
    """Trains what is not in the file yet, one training at a time."""
    done = {(row.arm, row.size, row.seed, row.fold) for row in read_rows(out)}
    cache = out.with_suffix(".features")
    folds = {name: open_fold(source, name, 5, cache) for name in fold_names(source, 5)}
    parts = {
        name: {key: read_part(getattr(fold, key)) for key in ("train", "valid", "test")} for name, fold in folds.items()
    }
    for seed, size, arm, fold in product(seeds, sizes, names, folds):
        if (arm, size, seed, fold) not in done:
            family, hyperparameters = arms()[arm]
            epoch, mean, values = train(parts[fold], create(family, **hyperparameters), SIZES[size], seed)
            tested = dict(zip(parts[fold]["test"].query_ids, [round(v, 6) for v in values.tolist()], strict=True))
            row = Row(arm, size, seed, fold, epoch, mean, tested)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row._asdict()) + "\n")
        yield


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", help="a feature set: a folder of folds")
    parser.add_argument("out", type=Path, help="a file of lines of JSON")
    parser.add_argument("--arms", nargs="*", default=list(arms()), choices=list(arms()))
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    given = parser.parse_args()
    log_to_terminal()
    alpha_variants.register()
    try:
        rows = partial(make_rows, given.collection, given.out, given.arms, given.sizes, given.seeds)
        for _ in progress(rows(), 5 * len(given.arms) * len(given.sizes) * len(given.seeds), "trainings"):
            pass
    except UserError as error:
        sys.exit(f"alpha_features.py: {error}")
    print(table([row for row in read_rows(given.out) if row.arm in given.arms], MEASURE))
