"""The only training loop: accumulate exactly, step, validate, keep the best epoch, stop early, resume."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rerank.batches.batch import Batch, Packed
from rerank.batches.prefetch import prefetch
from rerank.errors import UserError
from rerank.models.memory import TokenBudget
from rerank.training.gradients import Loss, accumulate_gradient, probe_memory
from rerank.types import Candidates
from rerank.utils.files import atomic_write
from rerank.utils.progress import log, progress


def train(
    model: nn.Module,
    parameter_groups: list[dict[str, Any]],
    epoch_lists: Callable[[int], Sequence[Candidates]],
    batch_of: Callable[[Sequence[Candidates]], Batch],
    loss: Loss,
    validate: Callable[[], float],
    keep_best: Callable[[], None],
    accelerator: Accelerator,
    budget: TokenBudget | None,
    folder: Path,
    *,
    epochs: int,
    lists_per_step: int,
    clip: float,
    patience: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Trains `model` in place and returns what was measured, one record an epoch (see `_epoch`).

    `epoch_lists` gives an epoch's training lists (epochs count from 0), `batch_of` builds their batch, `validate` the
    value to maximise after an epoch, and `keep_best` is called on the main process when that value is the best so far.
    Training stops after `patience` epochs without a better value. After every epoch the whole state is in
    `folder`/state, from which the next call with the same arguments goes on; random numbers depend on seed, epoch and
    list alone, so it goes on exactly. Raises UserError when a loss is not finite, before it reaches the weights.
    """
    optimizer = torch.optim.Adam(parameter_groups, fused=True)
    history = _restore(folder / "state", model, optimizer)
    while len(history) < epochs and not _exhausted(history, patience):
        epoch = len(history)
        steps = _shared_out(epoch_lists(epoch), lists_per_step, accelerator)

        def build(step: Step, epoch: int = epoch) -> Batch[Any]:
            batch = batch_of(step.lists)
            return batch._replace(inputs=batch.inputs.seeded(_seeds(batch.mask, step.places, epoch, seed)))

        model.train()
        if budget is not None and not budget.tried:
            probe_memory(model, build(steps[0]), accelerator, budget)
        record = _epoch(model, optimizer, steps, build, loss, accelerator, budget, f"epoch {epoch + 1}", clip)
        value = validate()
        best = value > max((past["valid"] for past in history), default=-float("inf"))
        history.append({"epoch": epoch + 1, **record, "valid": value})
        if accelerator.is_main_process:
            if best:
                keep_best()
            _save(folder, model, optimizer, history)
            smooth = f" (smooth {record['smooth']:.3f})" if "smooth" in record else ""
            log.info(
                f"epoch {epoch + 1}: loss {record['loss']:.4f}, NDCG of the lists {record['ndcg']:.3f}{smooth}, "
                f"validation {value:.4f}{' (best)' if best else ''}"
            )
        accelerator.wait_for_everyone()
    return history


def _exhausted(history: list[dict[str, Any]], patience: int) -> bool:
    if not history:
        return False
    values = [record["valid"] for record in history]
    return len(values) - 1 - values.index(max(values)) >= patience


MEASURED = ("loss", "ndcg", "smooth")
"""The columns of `accumulate_gradient`."""


class Step(NamedTuple):
    """The lists of a step that this process takes, their places in the epoch, and how many the step has in all."""

    lists: list[Candidates]
    places: list[int]
    of: int


def _shared_out(lists: Sequence[Candidates], lists_per_step: int, accelerator: Accelerator) -> list[Step]:
    """Each process takes every n-th list of a step."""
    world, rank = accelerator.num_processes, accelerator.process_index
    steps = []
    for first in range(0, len(lists), lists_per_step):
        step = lists[first : first + lists_per_step]
        if len(step) < world:
            raise UserError(
                f"{world} processes share the lists of a step, but a step has only {len(step)}: "
                f"use at most that many processes, or change --training.lists-per-step"
            )
        steps.append(Step(list(step[rank::world]), list(range(first + rank, first + len(step), world)), len(step)))
    return steps


def _epoch(
    model: Any,
    optimizer: torch.optim.Optimizer,
    steps: Sequence[Step],
    build: Callable[[Step], Batch[Any]],
    loss: Loss,
    accelerator: Accelerator,
    budget: TokenBudget | None,
    what: str,
    clip: float,
) -> dict[str, Any]:
    """One pass over the epoch's lists: a step's gradient is that of the mean loss of its lists.

    Returns the means over the lists of what `accumulate_gradient` measures, the means of each step but for the loss
    under `steps`, and the epoch's `seconds`, `documents` and, of text, `tokens`.
    """
    begun = time.perf_counter()
    sums = torch.zeros(1, dtype=torch.float64)
    of_steps = []
    seen = documents = tokens = 0

    def figures() -> str:
        return " ".join(f"{name} {value:.4f}" for name, value in zip(MEASURED, (sums / seen).tolist(), strict=False))

    bar = progress(prefetch(steps, build), len(steps), what, figures, accelerator.is_main_process)
    for number, (step, batch) in enumerate(bar):
        of_step = accumulate_gradient(model, batch, loss, 1 / step.of, accelerator, budget)
        _check(of_step[:, 0], step, f"{what}, step {number + 1}", accelerator)
        sums = sums + of_step.sum(0)
        seen += len(of_step)
        of_steps.append(torch.cat([of_step[:, 1:].sum(0), torch.tensor([float(len(of_step))])]))
        documents += int(batch.mask.sum())
        tokens += len(batch.inputs.input_ids) if isinstance(batch.inputs, Packed) else 0
        _sum_over_processes(model, accelerator)
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    model.zero_grad(set_to_none=True)
    total = accelerator.reduce(torch.cat([sums, torch.tensor([float(seen)])]).float().to(accelerator.device)).tolist()
    *step_sums, lists = accelerator.reduce(torch.stack(of_steps, 1).float().to(accelerator.device)).cpu()
    worked = accelerator.reduce(torch.tensor([documents, tokens], device=accelerator.device)).tolist()
    return {
        **dict(zip(MEASURED, (value / total[-1] for value in total[:-1]), strict=False)),
        "steps": {name: _rounded(of / lists) for name, of in zip(MEASURED[1:], step_sums, strict=False)},
        "seconds": round(time.perf_counter() - begun, 2),
        **{name: count for name, count in zip(("documents", "tokens"), worked, strict=True) if count},
    }


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]


def _seeds(mask: Tensor, places: Sequence[int], epoch: int, seed: int) -> Tensor:
    """What the dropout of each document follows from, whoever computes it: (documents,) int64."""
    of_list = torch.tensor([hash((seed, epoch, place)) % 2**62 for place in places])
    return (of_list[:, None] + torch.arange(mask.shape[1]) * 7_368_787)[mask]


def _check(losses: Tensor, step: Step, where: str, accelerator: Accelerator) -> None:
    """Raises UserError on every process where a loss of any is not finite."""
    broken = [step.lists[row] for row in (~losses.isfinite()).nonzero()[:, 0].tolist()]
    if accelerator.reduce(torch.tensor(len(broken), device=accelerator.device)) > 0:
        lists = gather_object(broken) if accelerator.num_processes > 1 else broken
        raise UserError(
            f"{where}: the loss is not finite on "
            + "; ".join(f"query {c.query_id} with documents {', '.join(c.doc_ids)}" for c in lists)
            + ". The weights before this epoch are kept; try a smaller learning rate or --training.clip 1, under "
            "another --name"
        )


def _sum_over_processes(model: nn.Module, accelerator: Accelerator) -> None:
    """The gradients of all processes' lists, summed into each: once a step, after the last list."""
    if accelerator.num_processes > 1:
        with_gradient = [parameter for parameter in model.parameters() if parameter.grad is not None]
        for parameter in with_gradient:
            parameter.grad = accelerator.reduce(parameter.grad)


def _save(folder: Path, model: nn.Module, optimizer: Any, history: list[dict[str, Any]]) -> None:
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{key}": value for key, value in values.items()}
    with atomic_write(folder / "state") as tmp:
        tmp.mkdir()
        save_file(
            {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()},
            tmp / "state.safetensors",
        )
        (tmp / "history.json").write_text(json.dumps(history), encoding="utf-8")
    with atomic_write(folder / "log.jsonl") as tmp:
        tmp.write_text("".join(json.dumps(record) + "\n" for record in history), encoding="utf-8")


def _restore(state: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    if not state.is_dir():
        return []
    try:
        tensors = load_file(state / "state.safetensors")
        history: list[dict[str, Any]] = json.loads((state / "history.json").read_text(encoding="utf-8"))
        model.load_state_dict(
            {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"{state}: training cannot go on from here ({error}); remove the folder to start again"
        ) from error
    values: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, number, key = name.split(".")
            values.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({"state": values, "param_groups": optimizer.state_dict()["param_groups"]})
    log.info(f"going on after epoch {len(history)}")
    return history
