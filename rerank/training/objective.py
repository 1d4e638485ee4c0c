"""The objectives: training minimises a loss; validation maximises the mean of a measure, or minus the mean loss."""

from collections.abc import Callable
from functools import partial
from itertools import islice

import torch
from accelerate import Accelerator

from rerank.batches.batch import make_batch
from rerank.config import LossSettings
from rerank.data.types import Candidates, Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.losses import create
from rerank.training.gradients import Loss
from rerank.training.loop import Objective, train
from rerank.training.state import EpochRecord, TrainingFolder
from rerank.training.task import Task
from rerank.utils.errors import UserError

LISTS = 512  # lists whose losses are computed at once


def open_loss(loss: str | LossSettings) -> Loss:
    """The loss of settings, or of a name with default hyperparameters.

    Raises UserError if there is no such loss or hyperparameter, or a value is out of range.
    """
    settings = LossSettings(loss) if isinstance(loss, str) else loss
    try:
        return create(settings.name, **settings.hyperparameters)
    except ValueError as error:
        raise UserError(f"--loss {error}") from error


def train_to_rank(
    task: Task,
    loss: str | LossSettings,
    folder: TrainingFolder,
    accelerator: Accelerator,
    show: bool = True,
) -> list[EpochRecord]:
    """Trains by `loop.train`, with the measure of `task.training` on the validation queries to choose the epoch.

    If `show` is true and the measure is not "loss", the records also have the first stage's value on the same queries
    and candidates.
    """
    opened, measure = open_loss(loss), task.training.measure
    value = partial(validation_value, qrels=task.qrels("valid"), measure=measure, loss=opened)
    first = _first_stage_value(task, value) if show and measure != "loss" else {}
    objective = Objective(opened, lambda run: {"valid": value(run), **first})
    return train(task, objective, folder, accelerator, show)


def _first_stage_value(task: Task, value: Callable[[Run], float]) -> dict[str, float]:
    """The field `first_stage` of the records; the first stage's run, which may be large, is not kept."""
    run = task.first_stage
    return {"first_stage": value(run)} if run else {}


def validation_value(run: Run, qrels: Qrels, measure: str, loss: Loss) -> float:
    """The value of a run of the validation queries; higher is better.

    It is the mean of `measure` over the judged queries. With the measure "loss" it is minus the mean loss over all
    queries, where a document without a judgment, or with a negative one, has the label 0.
    """
    if measure == "loss":
        return -_mean_loss(run, qrels, loss)
    (values,) = evaluate(qrels, run, [measure]).values()
    return sum(values.values()) / len(values)


def _mean_loss(run: Run, qrels: Qrels, loss: Loss) -> float:
    total, left = 0.0, iter(run.items())
    while rankings := dict(islice(left, LISTS)):
        lists = []
        for query_id, scores in rankings.items():
            judged = qrels.get(query_id, {})
            lists.append(Candidates(query_id, tuple(scores), tuple(max(0, judged.get(doc_id, 0)) for doc_id in scores)))
        batch = make_batch(lists, lambda pairs: torch.tensor([run[query_id][doc_id] for query_id, doc_id in pairs]))
        total += float(loss(batch.grid(batch.inputs), batch.labels, batch.mask).double().sum())
    return total / len(run)
