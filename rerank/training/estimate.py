"""What a training costs: measured for about a second before it begins, to say how long it will take."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator

from rerank.config import LossSettings
from rerank.training.average import holding
from rerank.training.gradients import accumulate_gradient
from rerank.training.objective import open_loss
from rerank.training.randomness import seeded
from rerank.training.task import Task
from rerank.utils.progress import log, say_how_long, timed_sample
from rerank.utils.texts import counted

MOST_MEASURED = 64
"""Most lists that are measured, at equal distances in an epoch."""


@dataclass(frozen=True)
class Cost:
    """The seconds of a training on this machine.

    lists: the lists of an epoch.
    list_seconds: the gradient of a list.
    validated: the documents that are scored after an epoch.
    document_seconds: the score of a document.
    tested: the documents that are scored after the training.
    """

    lists: int
    list_seconds: float
    validated: int
    document_seconds: float
    tested: int = 0

    def seconds(self, epochs: int) -> float:
        """The seconds of all epochs, none of which ends the training early, and of the test queries."""
        scored = epochs * self.validated + self.tested
        return epochs * self.lists * self.list_seconds + scored * self.document_seconds


def measure(task: Task, loss: str | LossSettings, accelerator: Accelerator) -> Cost:
    """Measures the gradients of some lists, and their scores, for about a second each.

    The weights, the running statistics and the random numbers of the model stay as they are.
    """
    model, opened, lists = task.model, open_loss(loss), task.training_lists(0)
    apart = -(-len(lists) // MOST_MEASURED) or 1
    at_once = 1 if task.memory else task.training.lists_per_step  # batch norm needs the lists of a step
    documents = []

    def train(sample: Sequence[Any]) -> None:
        batch = task.batch(sample)
        documents.append(int(batch.mask.sum()) / len(sample))
        accumulate_gradient(model, batch, opened, 1.0, accelerator, task.memory)

    def score(sample: Sequence[Any]) -> None:
        with torch.no_grad(), accelerator.autocast():
            model(task.batch(sample).inputs.to(accelerator.device))

    chosen = lists[::apart]
    samples = [chosen[first : first + at_once] for first in range(0, len(chosen), at_once)]
    statistics = dict(model.named_buffers())
    with seeded(0, accelerator.device), holding(statistics, statistics):  # restored after the block
        model.train()
        list_seconds = timed_sample(train, samples)
        model.eval()
        document_seconds = timed_sample(score, samples) / (sum(documents) / len(documents))
        model.zero_grad(set_to_none=True)
    validated, tested = task.documents("valid"), task.documents("test")
    return Cost(len(lists), list_seconds / at_once, validated, document_seconds / at_once, tested)


def say_before(task: Task, loss: str | LossSettings, accelerator: Accelerator, folds: int = 1) -> None:
    """Logs the lists, steps, epochs and folds of trainings like this one, and about how long they take.

    Nothing is measured in a process that logs nothing.
    """
    if not (accelerator.is_main_process and log.isEnabledFor(logging.INFO)):
        return
    cost, settings = measure(task, loss, accelerator), task.training
    steps = -(-cost.lists // settings.lists_per_step)
    of_folds = f", {folds} folds" if folds > 1 else ""
    epoch = f"{counted(cost.lists, 'list')} in {counted(steps, 'step')} an epoch"
    what = f"training {epoch}, {counted(settings.epochs, 'epoch')}{of_folds}"
    say_how_long(what, folds * cost.seconds(settings.epochs))
