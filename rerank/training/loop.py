"""The training loop: step, validate, keep the best epoch, stop early, resume."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from rerank.batches.batch import Batch, Packed
from rerank.config import TrainingSettings
from rerank.data.types import Candidates, Run
from rerank.training.average import AveragedWeights
from rerank.training.gradients import Loss, accumulate_gradient, probe_memory
from rerank.training.state import Trained, TrainingFolder, check_kept, restore_state, save_state
from rerank.training.steps import (
    Step,
    dropout_seeds,
    loss_scale,
    make_optimizer,
    make_steps,
    set_learning_rates,
    sum_gradients,
    take_step,
)
from rerank.training.task import Task
from rerank.training.tracking import log_epoch
from rerank.utils.errors import UserError
from rerank.utils.parallel import prefetch
from rerank.utils.progress import log, progress

SECONDS_BETWEEN_STATES = 180.0


def train(
    task: Task,
    loss: Loss,
    folder: TrainingFolder,
    settings: TrainingSettings,
    accelerator: Accelerator,
    validate: Callable[[Run], float] | None,
    show: bool = True,
) -> list[dict[str, Any]]:
    """Trains the model of `task` in place and returns one record per epoch (see `_train_epoch`).

    After each epoch `validate` maps the run of the validation queries to the value to maximise. The checkpoint and the
    run of the best epoch are kept in `folder`; training stops after `settings.patience` epochs without a better value.
    Without `validate`, all epochs are trained, the checkpoint is that of the last one, and no record has a "valid".
    With `settings.average` the weights that are validated and kept are averages (see `AveragedWeights`). The state is
    saved: on a CPU after each epoch; on a GPU, whose epochs are shorter, with each new best epoch, after the last one,
    and at least every SECONDS_BETWEEN_STATES. The next call with the same arguments resumes from it. Learning rates
    depend on the step alone, and random numbers on the seed, the epoch and the list alone, so a resumed training ends
    with the same weights as an uninterrupted one.

    Args:
        task: the model and its data.
        loss: maps scores, labels and mask, each (lists, documents), to (lists,).
        folder: where the checkpoint, the run, the log and the state are written.
        settings: epochs, lists_per_step, schedule, warmup_ratio, weight_decay, average, clip, patience and seed are
            used; the rest is the task's.
        accelerator: the device and the processes; the epochs' records also go to its trackers.
        validate: gives the value of a run of the validation queries; None: there are none.
        show: whether progress and a line for each epoch are shown.

    Raises:
        UserError: a loss is not finite (before it reaches the weights), or the saved state is damaged, was trained
            with validation but now goes without, or the reverse, or is of more epochs than are to be trained, or the
            checkpoint is not the one that was written.
    """
    epochs = settings.epochs
    optimizer = make_optimizer(task.parameter_groups(), settings.weight_decay)
    average = AveragedWeights(task.model, settings.average)
    show = show and accelerator.is_main_process
    trained = Trained(task.model, optimizer, average, accelerator.scaler)
    training = _Training(task, loss, settings, accelerator, trained, show)
    history, kept = restore_state(folder, trained, accelerator.is_main_process)
    _expect_same_training(history, epochs, validate is not None, folder.state)
    saved = time.monotonic()

    def save_best(target: Path) -> None:
        with average.applied():
            task.save(target)

    while not _ended(history, epochs, settings.patience):
        record = _train_epoch(training, len(history))
        run = None
        if validate is not None:
            with average.applied():
                run = task.score("valid")
            record["valid"] = validate(run)
        history.append(record)
        best = kept_epoch(history) is record
        if accelerator.is_main_process:
            if best or _is_due(accelerator.device, saved) or _ended(history, epochs, settings.patience):
                kept = save_state(folder, trained, kept, history, (save_best, run) if best else None)
                saved = time.monotonic()
            if show:
                _report(record, best)
        log_epoch(accelerator, record)
        accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        check_kept(folder, kept)
    accelerator.wait_for_everyone()
    return history


@dataclass(frozen=True)
class _Training:
    """What does not change from epoch to epoch."""

    task: Task
    loss: Loss
    settings: TrainingSettings
    accelerator: Accelerator
    trained: Trained
    show: bool

    def make_batch(self, step: Step, epoch: int) -> Batch[Any]:
        """The batch of a step, with the seeds of its dropout."""
        batch = self.task.batch(step.lists)
        return batch._replace(
            inputs=batch.inputs.seeded(dropout_seeds(batch.mask, step.positions, epoch, self.settings.seed))
        )


def kept_epoch(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The record of the epoch whose model is kept: the first of the best by validation; without it, the last."""
    return max(history, key=lambda record: record["valid"]) if "valid" in history[-1] else history[-1]


def _is_due(device: torch.device, saved: float) -> bool:
    """Whether a state is saved after any epoch, if the one before was at the time `saved`."""
    return device.type == "cpu" or time.monotonic() - saved >= SECONDS_BETWEEN_STATES


def _ended(history: list[dict[str, Any]], epochs: int, patience: int) -> bool:
    return len(history) >= epochs or (bool(history) and len(history) - kept_epoch(history)["epoch"] >= patience)


def _expect_same_training(history: list[dict[str, Any]], epochs: int, validated: bool, state: Path) -> None:
    """Raises UserError if training cannot go on from the saved epochs."""
    if history and ("valid" in history[-1]) != validated:
        before, now = ("with", "without") if not validated else ("without", "with")
        raise UserError(f"{state}: begun {before} validation, now {now}; go on as before, or remove the folder")
    if not validated and len(history) > epochs:
        raise UserError(
            f"{state}: has {len(history)} epochs, now {epochs} are wanted; remove the folder to start again"
        )


def _report(record: dict[str, Any], best: bool) -> None:
    valid = f", validation {record['valid']:.4f}{' (best)' if best else ''}" if "valid" in record else ""
    losses = f"loss {record['loss']:.4f}, NDCG of the lists {record['ndcg']:.3f}"
    log.info(f"epoch {record['epoch']}: {losses}{valid}")


STATS = ("loss", "ndcg")
"""The columns of what `accumulate_gradient` returns."""


def _train_epoch(training: _Training, epoch: int) -> dict[str, Any]:
    """One pass over the lists of an epoch, counted from 0; the gradient of a step is that of its lists' mean loss.

    Returns the record of the epoch: its number, from 1, the means over its lists of what `accumulate_gradient` returns,
    `seconds`, `documents`, and for text `tokens`; in fp16 `skipped` too, the steps whose gradient overflowed.
    """
    task, accelerator, settings = training.task, training.accelerator, training.settings
    model, optimizer, what = task.model, training.trained.optimizer, f"epoch {epoch + 1}"
    steps = make_steps(task.training_lists(epoch), settings.lists_per_step, accelerator)
    model.train()
    if task.memory is not None and not task.memory.tried:
        probe_memory(model, training.make_batch(steps[0], epoch), accelerator, task.memory)
        task.memory.agree(accelerator)
    start = time.perf_counter()
    sums = torch.zeros(1, dtype=torch.float64)
    lists = documents = tokens = skipped = 0

    def postfix() -> str:
        return " ".join(f"{name} {value:.4f}" for name, value in zip(STATS, (sums / lists).tolist(), strict=True))

    batches = prefetch(steps, lambda step: training.make_batch(step, epoch))
    bar = progress(batches, len(steps), what, postfix, training.show)
    for number, (step, batch) in enumerate(bar, 1):
        weight = loss_scale(accelerator) / step.total
        stats = accumulate_gradient(model, batch, training.loss, weight, accelerator, task.memory)
        broken = [step.lists[row] for row in (~stats[:, 0].isfinite()).nonzero()[:, 0].tolist()]
        if sum_gradients(model, len(broken), accelerator):
            raise _not_finite(broken, f"{what}, step {number}", accelerator)
        sums = sums + stats.sum(0)
        lists += len(stats)
        documents += int(batch.mask.sum())
        tokens += len(batch.inputs.input_ids) if isinstance(batch.inputs, Packed) else 0
        done = epoch * len(steps) + number - 1  # as if all epochs had as many; a pre-training's last may have fewer
        set_learning_rates(optimizer, settings, done, settings.epochs * len(steps))
        skipped += not take_step(model, optimizer, settings.clip, accelerator)
        training.trained.average.update(done + 1)
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


def _not_finite(broken: list[Candidates], where: str, accelerator: Accelerator) -> UserError:
    """The error of lists, of any process, whose loss is not finite; every process must ask for it."""
    lists = gather_object(broken) if accelerator.num_processes > 1 else broken
    return UserError(
        f"{where}: the loss is not finite on "
        + "; ".join(f"query {c.query_id} with documents {', '.join(c.doc_ids)}" for c in lists)
        + ". The weights before this epoch are kept; try a smaller learning rate or --training.clip 1, under "
        "another --name"
    )
