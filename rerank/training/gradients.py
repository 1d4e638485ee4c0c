"""Gradient caching (Gao et al. 2021): exact listwise gradients in bounded memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from rerank.batches.batch import Batch, Packed
from rerank.batches.microbatches import make_microbatches, restore_order
from rerank.losses import exact_metric, smoothi
from rerank.models.gpu import full_float32
from rerank.models.memory import DoesNotFitError, TokenBudget, is_out_of_memory
from rerank.utils.errors import UserError

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps scores, labels and mask, each (lists, documents), to (lists,)."""


@dataclass(frozen=True)
class _Objective:
    """What is minimised: `weight` times the sum of the lists' losses, computed on the accelerator's device."""

    loss: Loss
    weight: float
    accelerator: Accelerator


def accumulate_gradient(
    model: Any, batch: Batch[Any], loss: Loss, weight: float, accelerator: Accelerator, memory: TokenBudget | None
) -> Tensor:
    """Sets the parameters' gradients to that of the sum of the lists' losses times `weight`.

    Lists that fit into the memory budget together go through the model once. A longer list is scored without a graph,
    the loss gives the gradient with respect to its scores, and its passages go through the model again with a graph, as
    many at a time as fit. Dropout depends on `batch.inputs.seeds` alone, so both ways give the same gradient. On
    out-of-memory errors the budget is halved and the step is repeated. Without a budget all documents go through in one
    forward pass, for models whose scores depend on the other documents of the step (batch norm).

    Returns:
        (lists, 3) on the CPU: the loss of each list, and of its grades the NDCG and the smooth NDCG (SmoothI's); see
        `Batch.grades`. Without a budget
        (lists, 2): the network is so small that the smooth NDCG would be most of the work.

    Raises:
        UserError: a single passage does not fit into memory, or the scores of a list do not.
    """
    objective = _Objective(loss, weight, accelerator)
    if memory is None:
        return _single_pass_gradient(model, batch, objective)
    lengths = batch.inputs.lengths()
    rows = batch.mask.nonzero()[:, 0][batch.inputs.documents].tolist()  # the list of each passage

    def gradient(tokens: int) -> Tensor:
        model.zero_grad(set_to_none=True)
        stats = torch.zeros(len(batch.labels), 3, dtype=torch.float64)
        for group in _group_lists(lengths, rows, tokens, model.is_padded):
            lists = sorted(group)
            stats[lists] = _cached_gradient(model, _take_lists(batch, lists, rows), tokens, objective)
        return stats

    return memory.run(gradient, max(lengths))


def probe_memory(model: Any, batch: Batch[Any], accelerator: Accelerator, memory: TokenBudget) -> None:
    """Halves the budget until as many copies of the batch's longest passage as fill it fit, forward and backward."""
    lengths = batch.inputs.lengths()
    longest = lengths.index(max(lengths))

    def forward_and_backward(tokens: int) -> None:
        inputs = batch.inputs.take([longest] * max(1, tokens // lengths[longest])).to(accelerator.device)
        with accelerator.autocast():
            scores = model(inputs)
        scores.sum().backward()

    memory.run(forward_and_backward, lengths[longest])
    memory.tried = True
    model.zero_grad(set_to_none=True)


def _group_lists(lengths: list[int], rows: list[int], tokens: int, is_padded: bool) -> list[list[int]]:
    """Groups of lists that fit into one forward pass, longest list first; a longer list is a group of its own."""
    list_lengths: dict[int, list[int]] = {}
    for length, row in zip(lengths, rows, strict=True):
        list_lengths.setdefault(row, []).append(length)
    groups: list[list[int]] = []
    filled: list[int] = []
    for row in sorted(list_lengths, key=lambda row: -sum(list_lengths[row])):
        if not groups or len(make_microbatches(filled + list_lengths[row], tokens, is_padded)) > 1:
            groups.append([])
            filled = []
        groups[-1].append(row)
        filled += list_lengths[row]
    return groups


def _take_lists(batch: Batch[Packed], lists: list[int], rows: list[int]) -> Batch[Packed]:
    """The batch of these lists, in ascending order; `rows` are the lists of the passages."""
    chosen = set(lists)
    inputs = batch.inputs.take([passage for passage, row in enumerate(rows) if row in chosen])
    documents = inputs.documents.unique_consecutive(return_inverse=True)[1]
    query_ids = tuple(batch.query_ids[row] for row in lists)
    return Batch(inputs._replace(documents=documents), batch.labels[lists], batch.mask[lists], query_ids, batch.scored)


def _cached_gradient(model: Any, batch: Batch[Packed], tokens: int, objective: _Objective) -> Tensor:
    inputs, accelerator = batch.inputs, objective.accelerator
    groups = make_microbatches(inputs.lengths(), tokens, model.is_padded)

    def score(group: list[int]) -> Tensor:
        with (
            accelerator.autocast()
        ):  # one for each pass: autocast keeps casts of weights that were made without a graph
            scores: Tensor = model(inputs.take(group).to(accelerator.device))
        return scores.float()

    with torch.no_grad():
        cached = [score(group) for group in groups[:-1]]
    last = score(groups[-1])  # keeps its graph, so that it is not computed twice
    leaves = [scores.requires_grad_() for scores in [*cached, last.detach()]] if cached else [last]
    flat = model.pool(restore_order(torch.cat(leaves), groups), inputs.documents.to(last.device))
    stats = _backward(batch, flat, objective, smooth=True)
    if cached:
        last.backward(leaves[-1].grad)
        for group, leaf in zip(groups[:-1], leaves[:-1], strict=True):
            score(group).backward(leaf.grad)
    return stats


def _single_pass_gradient(model: Any, batch: Batch[Any], objective: _Objective) -> Tensor:
    model.zero_grad(set_to_none=True)
    try:
        with objective.accelerator.autocast():
            flat = model(batch.inputs.to(objective.accelerator.device)).float()
        return _backward(batch, flat, objective, smooth=False)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        if isinstance(error, DoesNotFitError):
            raise UserError(str(error)) from None
        raise UserError(
            f"out of memory with the {int(batch.mask.sum())} documents of a step, which go through the network "
            "together; take fewer --training.lists-per-step or a smaller --network.hidden"
        ) from None


def _backward(batch: Batch[Any], flat: Tensor, objective: _Objective, smooth: bool) -> Tensor:
    """Backpropagates the lists' losses at (documents,) scores, and returns loss, NDCG and smooth NDCG of each list."""
    grid = batch.grid(flat.to(_loss_device(flat.device)))
    leaf = grid.detach().requires_grad_()
    labels, mask = batch.labels.to(leaf.device), batch.mask.to(leaf.device)
    try:
        with full_float32():
            losses = objective.loss(leaf, labels, mask)
            (losses.sum() * objective.weight).backward()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise DoesNotFitError(
            f"query {batch.query_ids[0]}: out of memory in the loss of {grid.shape[0]} lists of "
            f"{grid.shape[1]} documents; take another loss or fewer documents with --lists.non-relevant"
        ) from None
    grid.backward(leaf.grad)
    scores, grades = leaf.detach(), batch.grades().to(leaf.device)
    stats = [losses.detach(), exact_metric(scores, grades, mask)]
    if smooth:
        stats.append(1 - smoothi(scores, grades, mask))
    return torch.stack(stats, dim=1).cpu().double()


def _loss_device(device: torch.device) -> torch.device:
    """Where the loss of scores on a device is computed: there, or on the CPU if float64 or determinism needs it.

    Some losses sum in float64, which Apple's GPUs lack; on a CUDA GPU cumulative sums have no deterministic algorithm.
    """
    on_device = device.type == "cpu" or (device.type == "cuda" and not torch.are_deterministic_algorithms_enabled())
    return device if on_device else torch.device("cpu")
