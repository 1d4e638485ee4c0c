"""The gradient of one training step, exact whatever fits into memory at a time: the loss sees whole lists."""

from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils.memory import should_reduce_batch_size
from torch import Tensor

from rerank.batches.batch import Batch
from rerank.batches.microbatches import make_microbatches, restore_order
from rerank.errors import UserError
from rerank.losses import exact_metric, smoothi
from rerank.models.memory import TokenBudget

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(scores, labels, mask) -> (lists,)."""


def accumulate_gradient(
    model: Any, batch: Batch[Any], loss: Loss, weight: float, accelerator: Accelerator, budget: TokenBudget | None
) -> Tensor:
    """Sets the parameters' gradients to that of the sum of the lists' losses times `weight`.

    Lists that fit into the budget together go through the model once. A longer list is scored without a graph, the loss
    gives the gradient in its scores, and its passages then go through the model again with a graph, so many at a time
    (gradient caching, Gao et al. 2021). Dropout follows from `batch.inputs.seeds`, so that both ways give the same
    gradient. Where memory runs out, the budget is halved and the step begins again. Without a budget all documents go
    through in one forward pass, for models whose scores depend on what else is in the step (batch norm).

    Returns:
        (lists, 3) on the CPU: each list's loss, its NDCG, and its smooth NDCG (SmoothI's); (lists, 2) without a budget,
        where the network is so small that the smooth NDCG would be most of the work.

    Raises:
        UserError: a passage does not fit into memory alone, or a list's scores do not.
    """
    if budget is None:
        return _in_one_pass(model, batch, loss, weight, accelerator)
    lengths = batch.inputs.lengths()
    rows = batch.mask.nonzero()[:, 0][batch.inputs.documents].tolist()  # each passage's list

    def gradient(tokens: int) -> Tensor:
        model.zero_grad(set_to_none=True)
        measured = torch.zeros(len(batch.labels), 3, dtype=torch.float64)
        for lists in _group_lists(lengths, rows, tokens, model.is_padded):
            measured[lists] = _cached_gradient(model, batch, lists, rows, loss, weight, accelerator, tokens)
        return measured

    return budget.run(gradient, max(lengths))


def probe_memory(model: Any, batch: Batch[Any], accelerator: Accelerator, budget: TokenBudget) -> None:
    """Fills the budget with copies of the batch's longest passage, there and back, and halves it until they fit."""
    lengths = batch.inputs.lengths()
    longest = lengths.index(max(lengths))

    def there_and_back(tokens: int) -> None:
        inputs = batch.inputs.take([longest] * max(1, tokens // lengths[longest])).to(accelerator.device)
        with accelerator.autocast():
            scores = model(inputs)
        scores.sum().backward()

    budget.run(there_and_back, lengths[longest])
    model.zero_grad(set_to_none=True)


def _group_lists(lengths: list[int], rows: list[int], tokens: int, is_padded: bool) -> list[list[int]]:
    """The lists in groups that one forward pass takes, longest list first; a longer list is alone."""
    of_row: dict[int, list[int]] = {}
    for length, row in zip(lengths, rows, strict=True):
        of_row.setdefault(row, []).append(length)
    groups: list[list[int]] = []
    inside: list[int] = []
    for row in sorted(of_row, key=lambda row: -sum(of_row[row])):
        if not groups or len(make_microbatches(inside + of_row[row], tokens, is_padded)) > 1:
            groups.append([])
            inside = []
        groups[-1].append(row)
        inside += of_row[row]
    return groups


def _cached_gradient(
    model: Any,
    batch: Batch[Any],
    lists: list[int],
    rows: list[int],
    loss: Loss,
    weight: float,
    accelerator: Accelerator,
    tokens: int,
) -> Tensor:
    lists.sort()
    inside = set(lists)
    inputs = batch.inputs.take([passage for passage, row in enumerate(rows) if row in inside])
    documents = inputs.documents.unique_consecutive(return_inverse=True)[1]
    groups = make_microbatches(inputs.lengths(), tokens, model.is_padded)

    def scores_of(group: list[int]) -> Tensor:
        with accelerator.autocast():  # of its own, as autocast keeps casts of weights made without a graph
            scores: Tensor = model(inputs.take(group).to(accelerator.device))
        return scores.float()

    with torch.no_grad():
        cached = [scores_of(group) for group in groups[:-1]]
    last = scores_of(groups[-1])  # its graph is kept: no need to compute it twice
    leaves = [scores.requires_grad_() for scores in [*cached, last.detach()]] if cached else [last]
    flat = model.pool(restore_order(torch.cat(leaves), groups), documents.to(last.device))
    part = batch._replace(
        labels=batch.labels[lists], mask=batch.mask[lists], query_ids=tuple(batch.query_ids[row] for row in lists)
    )
    measured = _backward(part, flat, loss, weight, smooth=True)
    if cached:
        last.backward(leaves[-1].grad)
        for group, leaf in zip(groups[:-1], leaves[:-1], strict=True):
            scores_of(group).backward(leaf.grad)
    return measured


def _in_one_pass(model: Any, batch: Batch[Any], loss: Loss, weight: float, accelerator: Accelerator) -> Tensor:
    model.zero_grad(set_to_none=True)
    try:
        with accelerator.autocast():
            flat = model(batch.inputs.to(accelerator.device)).float()
        return _backward(batch, flat, loss, weight, smooth=False)
    except RuntimeError as error:
        if not should_reduce_batch_size(error):
            raise
        raise UserError(
            f"out of memory with the {int(batch.mask.sum())} documents of a step, which go through the network "
            "together; take fewer --training.lists-per-step or a smaller --network.hidden"
        ) from None


def _backward(batch: Batch[Any], flat: Tensor, loss: Loss, weight: float, smooth: bool) -> Tensor:
    """Takes the gradient of the lists' losses in the documents' scores `flat`, and measures the lists."""
    labels, mask = batch.labels.to(flat.device), batch.mask.to(flat.device)
    grid = batch.grid(flat)
    values = _loss(loss, grid, labels, mask, batch)
    (values.sum() * weight).backward()
    free = grid.detach()
    measured = [values.detach(), exact_metric(free, labels, mask)]
    if smooth:
        measured.append(1 - smoothi(free, labels, mask))
    return torch.stack(measured, dim=1).double().cpu()


def _loss(loss: Loss, grid: Tensor, labels: Tensor, mask: Tensor, batch: Batch[Any]) -> Tensor:
    try:
        return loss(grid, labels, mask)
    except torch.OutOfMemoryError:
        raise UserError(
            f"query {batch.query_ids[0]}: out of memory in the loss of {grid.shape[0]} lists of "
            f"{grid.shape[1]} documents; take another loss or fewer documents with --lists.non-relevant"
        ) from None
