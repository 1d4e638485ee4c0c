"""Gradient caching (Gao et al. 2021): exact listwise gradients in bounded memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from rerank.batches.batch import Batch, Packed, make_microbatches, restore_order, to_device
from rerank.losses import exact_metric
from rerank.models.memory import DoesNotFitError, TokenBudget, is_out_of_memory, out_of_memory
from rerank.models.products import full_float32
from rerank.training.randomness import RandomState

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps scores, labels and mask, each (lists, documents), to (lists,)."""

Backward = Callable[[Batch, Tensor], tuple[Tensor, Tensor]]
"""`_backward` with its loss and weight."""


def accumulate_gradient(
    model: Any, batch: Batch, loss: Loss, weight: float, accelerator: Accelerator, memory: TokenBudget | None
) -> Tensor:
    """Sets the parameters' gradients to the gradient of the sum of the lists' losses times `weight`.

    Lists that fit into the memory budget together go through the model once. A longer list is first scored without a
    graph, and the loss gives the gradient of its scores. Then its passages go through the model again with a graph, one
    micro-batch at a time. Dropout drops the same values both times (see `RandomState`), so the gradient is exact. On
    out-of-memory errors the budget is halved and the step is repeated from its first random state. Without a budget all
    documents go through one forward pass, for models whose scores depend on the other documents (batch norm).

    The CPU waits for a GPU once per group of lists: the scores come to the CPU, where pooling, loss and metrics cost
    less than launching their kernels, and one gradient goes back. The metrics are computed during the GPU's backward
    pass.

    Returns:
        (lists, 2) on the CPU: the loss of each list, and the NDCG of its grades; see `Batch.grades`.

    Raises:
        UserError: a single passage, or the scores of a list, do not fit into memory.
    """
    backward = partial(_backward, loss=loss, weight=weight)
    if memory is None:
        return _single_pass_gradient(model, batch, backward, accelerator)
    lengths = batch.inputs.lengths()
    rows = batch.mask.nonzero()[:, 0][batch.inputs.documents].tolist()  # the list of each passage
    start = RandomState(accelerator.device)

    def gradient(tokens: int) -> Tensor:
        start.restore()
        model.zero_grad(set_to_none=True)
        stats = torch.zeros(len(batch.labels), 2, dtype=torch.float64)
        for group in _group_lists(lengths, rows, tokens, model.is_padded):
            lists = sorted(group)
            stats[lists] = _cached_gradient(model, _take_lists(batch, lists, rows), tokens, backward, accelerator)
        return stats

    return memory.run(gradient, max(lengths))


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
    """The batch with only the given lists, in ascending order; `rows` has the list of each passage."""
    if len(lists) == len(batch.query_ids):
        return batch
    chosen = set(lists)
    inputs = batch.inputs.take([passage for passage, row in enumerate(rows) if row in chosen])
    documents = inputs.documents.unique_consecutive(return_inverse=True)[1]
    query_ids = tuple(batch.query_ids[row] for row in lists)
    first_scores = batch.first_scores
    if first_scores is not None:
        first_scores = first_scores[torch.isin(batch.mask.nonzero()[:, 0], torch.tensor(lists))]
    inputs = inputs._replace(documents=documents)
    return Batch(inputs, batch.labels[lists], batch.mask[lists], query_ids, batch.scored, first_scores)


def _cached_gradient(
    model: Any, batch: Batch[Packed], tokens: int, backward: Backward, accelerator: Accelerator
) -> Tensor:
    inputs = batch.inputs
    groups = make_microbatches(inputs.lengths(), tokens, model.is_padded)
    micro_batches = [inputs.take(group).to(accelerator.device) for group in groups]

    def score(micro_batch: Packed) -> Tensor:
        with accelerator.autocast():  # one per pass, because it caches casts of weights, which may have no graph
            scores: Tensor = model(micro_batch)
        return scores

    states, cached = [], []
    # Compiled layers draw the same dropout in both passes only if both have a graph.
    with torch.set_grad_enabled(model.compiled):
        for micro_batch in micro_batches[:-1]:
            states.append(RandomState(accelerator.device))
            cached.append(score(micro_batch).detach())
    last = score(micro_batches[-1])  # keeps its graph, so it is computed only once
    scores = restore_order(torch.cat([*cached, last.detach()]).cpu(), groups).requires_grad_()
    flat = _with_first_scores(model, batch, model.pool(scores, inputs.documents))
    grid, losses = backward(batch, flat)
    assert scores.grad is not None  # the backward pass has set it
    order = torch.tensor([passage for group in groups for passage in group])
    *gradients, last_gradient = to_device(scores.grad[order], last.device).split([len(group) for group in groups])
    last.backward(last_gradient)
    for micro_batch, gradient, state in zip(micro_batches[:-1], gradients, states, strict=True):
        state.restore()
        score(micro_batch).backward(gradient)
    return _measured(batch, grid, losses)


def _single_pass_gradient(model: Any, batch: Batch, backward: Backward, accelerator: Accelerator) -> Tensor:
    model.zero_grad(set_to_none=True)
    try:
        with accelerator.autocast():
            flat = model(batch.inputs.to(accelerator.device)).float()
        # Some losses sum in float64, which Apple's GPUs lack; on CUDA cumulative sums have no deterministic algorithm.
        if flat.device.type != "cuda" or torch.are_deterministic_algorithms_enabled():
            flat = flat.cpu()
        return _measured(batch, *backward(batch, _with_first_scores(model, batch, flat)))
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        remedy = "take fewer --training.lists-per-step or, for feature vectors, a smaller --network.hidden"
        documents = f"the {int(batch.mask.sum())} documents of a step, which go through the network together"
        raise out_of_memory(error, f"{documents}; {remedy}") from None


def _with_first_scores(model: Any, batch: Batch, flat: Tensor) -> Tensor:
    """(documents,) scores plus the weighted first-stage scores, if the lists have them."""
    if batch.first_scores is None:
        return flat
    weight: float = model.first_stage_weight
    return flat + weight * batch.first_scores.to(flat.device)


def _backward(batch: Batch, flat: Tensor, loss: Loss, weight: float) -> tuple[Tensor, Tensor]:
    """Backpropagates the lists' losses at (documents,) scores; returns the grid of scores and the losses, (lists,)."""
    labels, mask = batch.labels.to(flat.device), batch.mask.to(flat.device)
    grid = batch.grid(flat)
    try:
        with full_float32():
            losses = loss(grid, labels, mask)
            (losses.sum() * weight).backward()
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise DoesNotFitError(
            f"query {batch.query_ids[0]}: out of memory in the loss of {grid.shape[0]} lists of "
            f"{grid.shape[1]} documents; take another loss or fewer documents with --lists.non-relevant"
        ) from None
    return grid.detach(), losses.detach()


def _measured(batch: Batch, scores: Tensor, losses: Tensor) -> Tensor:
    """Loss and NDCG of each list, (lists, 2) on the CPU, from the grid of scores."""
    ndcg = exact_metric(scores, batch.grades().to(scores.device), batch.mask.to(scores.device))
    return torch.stack([losses, ndcg], dim=1).cpu().double()
