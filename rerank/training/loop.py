"""The training loop: step, validate, keep the best epoch, stop early, resume."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from rerank.batches.batch import Batch, Packed
from rerank.config import TrainingSettings
from rerank.data.types import Candidates, Run
from rerank.training.average import AveragedWeights, copy_of, holding
from rerank.training.gradients import Loss, accumulate_gradient
from rerank.training.randomness import seeded
from rerank.training.state import EpochRecord, Trained, TrainingFolder, check_kept, restore_state, save_state
from rerank.training.steps import (
    INITIAL,
    Step,
    learning_rate_factor,
    loss_scale,
    make_optimizer,
    make_steps,
    sum_gradients,
    take_step,
)
from rerank.training.task import Task
from rerank.utils.errors import UserError
from rerank.utils.parallel import prefetch
from rerank.utils.progress import log, progress

SECONDS_BETWEEN_STATES = 180.0  # on a GPU; a state is what an interrupted training resumes from
BELOW_0 = "the loss is below 0: a metric loss is 1 - metric, and a smooth metric can exceed 1 (docs/papers.md)"
STATS = ("loss", "ndcg")  # the columns of the result of `accumulate_gradient`


@dataclass(frozen=True)
class Objective:
    """What a training minimises and what its validation maximises.

    loss: maps scores, labels and mask, each (lists, documents), to (lists,).
    validate: maps a run of the validation queries to fields of an epoch's record: `valid`, the value to maximise, and
        `first_stage`, the value of the first stage, if there is one.
    """

    loss: Loss
    validate: Callable[[Run], dict[str, float]]


@dataclass(frozen=True)
class _Setup:
    """The arguments of `train` that all epochs share."""

    task: Task
    loss: Loss
    accelerator: Accelerator
    trained: Trained
    show: bool


def train(
    task: Task,
    objective: Objective,
    folder: TrainingFolder,
    accelerator: Accelerator,
    show: bool = True,
) -> list[EpochRecord]:
    """Trains the model of `task` in place and returns one record per epoch (see `_train_epoch`).

    After each epoch the validation queries are scored. The checkpoint and the run of the best epoch are kept in
    `folder`. Training stops after `task.training.patience` epochs without a better value. With `task.training.average`
    the validated and kept weights are averages (see `AveragedWeights`).

    The state and the checkpoint of the best epoch are saved after each epoch on a CPU. On a GPU, which would wait for
    the disk, they are saved every SECONDS_BETWEEN_STATES and after the last epoch; in between, the best epoch's weights
    stay in memory. The next call with the same arguments resumes from the saved state. Learning rates depend only on
    the step, and random numbers only on the seed, the epoch, the step and the process, so a resumed training ends with
    the same weights as an uninterrupted one.

    Args:
        task: the model, its data and the settings. Of these, epochs, lists_per_step, schedule, warmup_ratio,
            weight_decay, average, clip, patience, measure and seed are used here; the task uses the others.
        objective: the loss and the validation.
        folder: the places of the checkpoint, the run, the log and the state.
        accelerator: the device and the processes; the epochs' records also go to its trackers.
        show: whether progress and a line for each epoch are shown.

    Raises:
        UserError: a loss is not finite (before it reaches the weights), the saved state is damaged, or the checkpoint
            has changed since it was written.
    """
    settings = task.training
    optimizer = make_optimizer(task.parameter_groups(), settings.weight_decay)
    average = AveragedWeights(task.model, settings.average)
    trained = Trained(task.model, optimizer, average, accelerator.scaler)
    is_main = accelerator.is_main_process
    history, kept = restore_state(folder, trained, is_main)
    setup = _Setup(task, objective.loss, accelerator, trained, show and is_main)
    saved = time.monotonic()
    best: BestEpoch | None = None  # the best epoch since the last save, if it is the best of all

    while not _ended(history, settings):
        record = _train_epoch(setup, len(history))
        with average.applied():
            run = task.score("valid")
        record |= objective.validate(run)
        history.append(record)
        is_best = best_epoch(history) is record
        if is_main:
            if is_best:
                best = BestEpoch(task, average, run)
            if _is_due(accelerator.device, saved) or _ended(history, settings):
                kept = save_state(folder, trained, kept, history, (best.save, best.run) if best else None)
                best, saved = None, time.monotonic()
            if show:
                losses = f"loss {record['loss']:.4f}, NDCG of the lists {record['ndcg']:.3f}"
                by_loss = settings.measure == "loss"  # the value to maximise is the negated loss
                valid = f"validation loss {-record['valid']:.4f}" if by_loss else f"validation {record['valid']:.4f}"
                valid += " (best)" if is_best else ""
                first = f", first stage {record['first_stage']:.4f}" if "first_stage" in record else ""
                log.info(f"epoch {len(history)}: {losses}, {valid}{first}")
                if record["loss"] < 0 and all(earlier["loss"] >= 0 for earlier in history[:-1]):
                    log.info(BELOW_0)
        logged = (*STATS, "valid", "first_stage", "seconds")
        accelerator.log({key: record[key] for key in logged if key in record}, step=len(history))
        accelerator.wait_for_everyone()
    if is_main:
        check_kept(folder, kept)
    accelerator.wait_for_everyone()
    return history


class BestEpoch:
    """The best epoch since the last save: a copy of its weights on the device, and its validation run."""

    def __init__(self, task: Task, average: AveragedWeights, run: Run) -> None:
        self.task, self.run = task, run
        with average.applied():
            self.weights = copy_of(task.model.state_dict())

    def save(self, folder: Path) -> None:
        """Writes the checkpoint of the epoch."""
        with holding(self.task.model.state_dict(), self.weights):
            self.task.save(folder)


def best_epoch(history: list[EpochRecord]) -> EpochRecord:
    """The record of the epoch whose model is kept: the first with the highest validation value."""
    return max(history, key=lambda record: record["valid"])


def _is_due(device: torch.device, saved: float) -> bool:
    """Whether to save a state after an epoch; `saved` is the time of the last save."""
    return device.type == "cpu" or time.monotonic() - saved >= SECONDS_BETWEEN_STATES


def _ended(history: list[EpochRecord], settings: TrainingSettings) -> bool:
    waited = len(history) - best_epoch(history)["epoch"] if history else 0
    return len(history) >= settings.epochs or waited >= settings.patience


def _train_epoch(setup: _Setup, epoch: int) -> EpochRecord:
    """Trains on the lists of an epoch, counted from 0; a step takes the gradient of the mean loss of its lists.

    Returns the record of the epoch: its number, from 1, the means of STATS over its lists, `seconds`, `documents`, for
    text `tokens`, and in fp16 `skipped`, the number of steps whose gradient overflowed.
    """
    task, settings, accelerator = setup.task, setup.task.training, setup.accelerator
    model, optimizer, what = task.model, setup.trained.optimizer, f"epoch {epoch + 1}"
    steps = make_steps(task.training_lists(epoch), settings.lists_per_step, accelerator)
    model.train()
    start = time.perf_counter()
    sums = torch.zeros(len(STATS), dtype=torch.float64)
    lists = documents = tokens = skipped = 0

    def make_batch(step: Step) -> Batch:
        return task.batch(step.lists)

    def postfix() -> str:
        return " ".join(f"{name} {value:.4f}" for name, value in zip(STATS, (sums / lists).tolist(), strict=True))

    bar = progress(prefetch(steps, make_batch), len(steps), what, postfix, setup.show)
    for number, (step, batch) in enumerate(bar, 1):
        seed = hash((settings.seed, epoch, number, accelerator.process_index)) % 2**62
        stats = _gradient_of_step(setup, step, batch, seed, f"{what}, step {number}")
        sums = sums + stats.sum(0)
        if not step.borrows:
            lists += len(stats)
            documents += int(batch.mask.sum())
            tokens += len(batch.inputs.input_ids) if isinstance(batch.inputs, Packed) else 0
        done = epoch * len(steps) + number - 1
        factor = learning_rate_factor(settings, done, settings.epochs * len(steps))
        for group in optimizer.param_groups:
            group["lr"] = group[INITIAL] * factor
        skipped += not take_step(model, optimizer, settings.clip, accelerator)
        setup.trained.average.update(done + 1)
    model.zero_grad(set_to_none=True)
    totals = accelerator.reduce(torch.cat([sums, torch.tensor([float(lists)])]).float().to(accelerator.device)).tolist()
    counts = accelerator.reduce(torch.tensor([documents, tokens], device=accelerator.device)).tolist()
    return {
        "epoch": epoch + 1,
        **dict(zip(STATS, (value / totals[-1] for value in totals[:-1]), strict=True)),
        "seconds": round(time.perf_counter() - start, 2),
        **({} if accelerator.scaler is None else {"skipped": skipped}),
        **{name: count for name, count in zip(("documents", "tokens"), counts, strict=True) if count},
    }


def _gradient_of_step(setup: _Setup, step: Step, batch: Batch, seed: int, where: str) -> torch.Tensor:
    """Sets the gradient of a step, summed over the processes; returns the STATS of this process's own lists.

    Raises UserError, whose message begins with `where`, if the loss of a list is not finite in any process.
    """
    model, accelerator = setup.task.model, setup.accelerator
    weight = 0.0 if step.borrows else loss_scale(accelerator) / step.total
    with seeded(seed, accelerator.device):
        stats = accumulate_gradient(model, batch, setup.loss, weight, accelerator, setup.task.memory)
    if step.borrows:
        stats = stats[:0]
    broken = [step.lists[row] for row in (~stats[:, 0].isfinite()).nonzero()[:, 0].tolist()]
    if sum_gradients(model, len(broken), accelerator):
        raise _not_finite(broken, where)
    return stats


def _not_finite(broken: list[Candidates], where: str) -> UserError:
    """The error for lists of all processes whose loss is not finite; every process must call this."""
    lists = [f"query {c.query_id} with documents {', '.join(c.doc_ids)}" for c in gather_object(broken)]
    return UserError(
        f"{where}: the loss is not finite on {'; '.join(lists)}. The weights before this epoch are kept; try a smaller "
        "learning rate or --training.clip 1, under another --name"
    )
