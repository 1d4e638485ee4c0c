"""What training minimises, a loss, and what validation maximises: the mean of a measure, or minus the mean loss."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rerank.batches.features import make_grid, rows_of
from rerank.config import LossSettings
from rerank.data.letor.store import FeatureSet
from rerank.data.types import Candidates, Run
from rerank.evaluation.evaluate import evaluate
from rerank.losses import create
from rerank.training.gradients import Loss
from rerank.training.task import Task
from rerank.utils.errors import UserError
from rerank.utils.plugins import load_plugins

LISTS = 512
"""Lists of feature vectors whose losses are computed together."""


def open_loss(settings: LossSettings, flag: str = "--loss") -> Loss:
    """Returns the loss of these settings; `flag` names it in messages.

    Raises UserError if there is no such loss or hyperparameter, or a value is out of range.
    """
    load_plugins()
    try:
        return create(settings.name, **settings.hyperparameters)
    except ValueError as error:
        raise UserError(f"{flag} {error}") from error


def validation_value(task: Task, run: Run, measure: str, loss: Loss) -> float:
    """The value of a run of the validation queries: higher is better.

    It is the mean of `measure` over the queries that have judgments; with the measure "loss", minus the mean loss.
    """
    if measure == "loss":
        return -task.mean_loss(run, "valid", loss)
    (values,) = evaluate(task.qrels("valid"), run, [measure]).values()
    return sum(values.values()) / len(values)


def mean_loss(run: Run, lists: Sequence[Candidates], loss: Loss) -> float:
    """The mean over the lists of their loss at the scores of a run."""
    losses = []
    for candidates in lists:
        scores = torch.tensor([[run[candidates.query_id][doc_id] for doc_id in candidates.doc_ids]])
        labels = torch.tensor([[float(label) for label in candidates.labels]])
        losses.append(float(loss(scores, labels, torch.ones_like(labels, dtype=torch.bool))))
    return sum(losses) / len(losses)


def mean_loss_of(features: FeatureSet, scores: Tensor, loss: Loss) -> float:
    """The mean over a set's lists of their loss at (documents,) scores, in the set's order."""
    total, done = 0.0, 0
    for begin in range(0, len(features.query_ids), LISTS):
        queries = np.arange(begin, min(begin + LISTS, len(features.query_ids)))
        lengths = features.stops[queries] - features.starts[queries]
        labels, mask = make_grid(features, rows_of(features, queries), lengths)
        documents = int(mask.sum())
        grid = torch.zeros(mask.shape).masked_scatter(mask, scores[done : done + documents])
        total += float(loss(grid, labels, mask).double().sum())
        done += documents
    return total / len(features.query_ids)
