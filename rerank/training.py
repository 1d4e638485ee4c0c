"""The only training loop: accumulate exactly, step, validate, keep the best epoch, stop early, resume."""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rerank.batches.batch import Batch
from rerank.errors import UserError
from rerank.files import replacing
from rerank.losses import smoothi
from rerank.losses.metrics import exact
from rerank.progress import progress, say
from rerank.types import Candidates

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(scores, labels, mask) -> (lists,)."""


def train(
    model: nn.Module,
    parameter_groups: list[dict[str, Any]],
    epoch_lists: Callable[[int], Sequence[Candidates]],
    batch_of: Callable[[Sequence[Candidates]], Batch],
    loss: Loss,
    validate: Callable[[], float],
    keep_best: Callable[[], None],
    accelerator: Accelerator,
    folder: Path,
    *,
    epochs: int,
    lists_per_step: int,
    clip: float,
    patience: int,
    seed: int,
) -> list[dict[str, float]]:
    """Trains `model` in place and returns what was measured, one record an epoch.

    `epoch_lists` gives an epoch's training lists (epochs count from 0), `batch_of` builds their batch, `validate` the
    value to maximise after an epoch, and `keep_best` is called on the main process when that value is the best so far.
    Training stops after `patience` epochs without a better value. After every epoch the whole state is in
    `folder`/state, from which the next call with the same arguments goes on; random numbers depend on seed, epoch and
    list alone, so it goes on exactly. Raises UserError when a loss is not finite, before it reaches the weights.
    """
    optimizer = torch.optim.Adam(parameter_groups, fused=True)
    history = _restore(folder / "state", model, optimizer)
    prepared, optimizer = accelerator.prepare(model, optimizer)
    while len(history) < epochs and not _exhausted(history, patience):
        epoch = len(history)
        record = _epoch(
            prepared, optimizer, epoch_lists(epoch), batch_of, loss, accelerator, epoch, lists_per_step, clip, seed
        )
        value = validate()
        best = value > max((past["valid"] for past in history), default=-float("inf"))
        history.append({"epoch": epoch + 1, **record, "valid": value})
        if accelerator.is_main_process:
            if best:
                keep_best()
            _save(folder, model, optimizer, history)
            say(
                f"epoch {epoch + 1}: loss {record['loss']:.4f}, NDCG of the lists {record['ndcg']:.3f} "
                f"(smooth {record['smooth']:.3f}), validation {value:.4f}{' (best)' if best else ''}"
            )
        accelerator.wait_for_everyone()
    return history


def _exhausted(history: list[dict[str, float]], patience: int) -> bool:
    if not history:
        return False
    values = [record["valid"] for record in history]
    return len(values) - 1 - values.index(max(values)) >= patience


def _epoch(
    model: nn.Module,
    optimizer: Any,
    lists: Sequence[Candidates],
    batch_of: Callable[[Sequence[Candidates]], Batch],
    loss: Loss,
    accelerator: Accelerator,
    epoch: int,
    lists_per_step: int,
    clip: float,
    seed: int,
) -> dict[str, float]:
    """One pass over `lists`: a step's gradient is that of the mean loss of its `lists_per_step` lists."""
    model.train()
    world, rank = accelerator.num_processes, accelerator.process_index
    steps = [lists[i : i + lists_per_step] for i in range(0, len(lists), lists_per_step)]
    if min(map(len, steps)) < world:
        raise UserError(
            f"{world} processes share the lists of a step, but a step has only {min(map(len, steps))}: "
            f"use at most that many processes, or change --training.lists-per-step"
        )
    sums = torch.zeros(3, dtype=torch.float64)
    seen = 0

    def figures() -> str:
        mean = (sums / max(seen, 1)).tolist()
        return f"loss {mean[0]:.4f} ndcg {mean[1]:.3f} smooth {mean[2]:.3f}"

    what = f"epoch {epoch + 1}"
    for number, step in enumerate(progress(steps, len(steps), what, figures, accelerator.is_main_process)):
        mine = range(rank, len(step), world)
        measured: list[Tensor] = []
        for place in mine:
            torch.manual_seed(
                hash((seed, epoch, number * lists_per_step + place)) % 2**63
            )  # dropout, whoever computes it
            batch = batch_of([step[place]])
            last = place == mine[-1]
            with nullcontext() if last else accelerator.no_sync(model):
                with accelerator.autocast():
                    flat = model(batch.inputs.to(accelerator.device))
                scores = batch.grid(flat.float())
                labels, mask = batch.labels.to(scores.device), batch.mask.to(scores.device)
                values = loss(scores, labels, mask)
                free = scores.detach()
                measured.append(
                    torch.stack([values.detach(), exact(free, labels, mask), 1 - smoothi(free, labels, mask)]).mean(1)
                )
                accelerator.backward(values.sum() * (world / len(step)))
        of_step = torch.stack(measured).double().cpu()
        broken = [step[place] for place, value in zip(mine, of_step[:, 0], strict=True) if not value.isfinite()]
        if accelerator.reduce(torch.tensor(len(broken), device=accelerator.device)) > 0:  # so that all processes stop
            lists = gather_object(broken) if world > 1 else broken
            raise UserError(
                f"epoch {epoch + 1}, step {number + 1}: the loss is not finite on "
                + "; ".join(f"query {c.query_id} with documents {', '.join(c.doc_ids)}" for c in lists)
                + ". The weights before this epoch are kept; try a smaller learning rate or --training.clip 1, under "
                "another --name"
            )
        sums += of_step.sum(0)
        seen += len(mine)
        if clip:
            accelerator.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    total = accelerator.reduce(torch.cat([sums, torch.tensor([float(seen)])]).float().to(accelerator.device)).tolist()
    return dict(zip(("loss", "ndcg", "smooth"), (value / total[3] for value in total[:3]), strict=True))


def _save(folder: Path, model: nn.Module, optimizer: Any, history: list[dict[str, float]]) -> None:
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, values in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{key}": value for key, value in values.items()}
    with replacing(folder / "state") as aside:
        aside.mkdir()
        save_file(
            {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()},
            aside / "state.safetensors",
        )
        (aside / "history.json").write_text(json.dumps(history), encoding="utf-8")
    with replacing(folder / "log.jsonl") as aside:
        aside.write_text("".join(json.dumps(record) + "\n" for record in history), encoding="utf-8")


def _restore(state: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, float]]:
    if not state.is_dir():
        return []
    try:
        tensors = load_file(state / "state.safetensors")
        history: list[dict[str, float]] = json.loads((state / "history.json").read_text(encoding="utf-8"))
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
    say(f"going on after epoch {len(history)}")
    return history
