"""What training minimises, a loss, and what validation maximises: the mean of a measure, or minus the mean loss."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import torch
from accelerate import Accelerator

from rerank.batches.batch import make_batch
from rerank.config import LossSettings, TrainingSettings
from rerank.data.types import Candidates, Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.losses import create
from rerank.training.gradients import Loss
from rerank.training.loop import train
from rerank.training.state import TrainingFolder
from rerank.training.task import Task
from rerank.utils.errors import UserError

LISTS = 512  # whose losses are computed together


def open_loss(loss: str | LossSettings, flag: str = "--loss") -> Loss:
    """The loss of a name, with its own hyperparameters, or of settings; `flag` names it in messages.

    Raises UserError if there is no such loss or hyperparameter, or a value is out of range.
    """
    settings = LossSettings(loss) if isinstance(loss, str) else loss
    try:
        return create(settings.name, **settings.hyperparameters)
    except ValueError as error:
        raise UserError(f"{flag} {error}") from error


def train_to_rank(
    task: Task,
    qrels: Qrels,
    loss: str | LossSettings,
    folder: TrainingFolder,
    settings: TrainingSettings,
    accelerator: Accelerator,
    show: bool = True,
) -> list[dict[str, Any]]:
    """Trains as `loop.train`; `settings.measure` of the validation queries, judged by `qrels`, chooses the epoch.

    If they are shown, the records have the first stage's value of the same queries and candidates, but not with the
    measure "loss".
    """
    opened = open_loss(loss)
    value = partial(validation_value, qrels=qrels, measure=settings.measure, loss=opened)
    beside = _of_first_stage(task, value) if show and settings.measure != "loss" else {}
    return train(task, opened, folder, settings, accelerator, lambda run: {"valid": value(run), **beside}, show)


def _of_first_stage(task: Task, value: Callable[[Run], float]) -> dict[str, float]:
    """The first stage's value for the records; its run is dropped, as it may be large."""
    run = task.first_stage
    return {"first_stage": value(run)} if run else {}


def validation_value(run: Run, qrels: Qrels, measure: str, loss: Loss) -> float:
    """The value of a run of the validation queries: higher is better.

    It is the mean of `measure` over the queries that have judgments; with the measure "loss", minus the mean loss of
    all queries, where a document without a judgment, or with a negative one, has the label 0.
    """
    if measure == "loss":
        return -_mean_loss(run, qrels, loss)
    (values,) = evaluate(qrels, run, [measure]).values()
    return sum(values.values()) / len(values)


def _mean_loss(run: Run, qrels: Qrels, loss: Loss) -> float:
    total, left = 0.0, iter(run.items())
    while some := dict(islice(left, LISTS)):
        lists = []
        for query_id, scores in some.items():
            judged = qrels.get(query_id, {})
            lists.append(Candidates(query_id, tuple(scores), tuple(max(0, judged.get(doc_id, 0)) for doc_id in scores)))
        batch = make_batch(lists, lambda pairs: torch.tensor([run[query_id][doc_id] for query_id, doc_id in pairs]))
        total += float(loss(batch.grid(batch.inputs), batch.labels, batch.mask).double().sum())
    return total / len(run)
