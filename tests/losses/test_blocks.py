"""Every loss in blocks against its graph, whatever the size of the blocks and the tiles."""

from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rerank.losses import LOSSES, soft_ranks, sorting
from rerank.losses.kernels import blocks
from rerank.losses.kernels.blocks import in_blocks
from tests.losses.graphs import loss_of, ragged_lists, value_and_gradient

CASES = [
    *[(name, {"metric": metric}) for name in ("approx", "neuralsort", "softsort", "fastsort", "pirank")
      for metric in ("ndcg@4", "p@200", "ap")],
    ("ot", {"metric": "ndcg@4"}),
    ("neural_ndcg", {"metric": "ndcg@4"}),
    ("approx", {"alpha": 300.0, "beta": 2.0, "metric": "ap"}),
    ("approx", {"alpha": 0.01, "beta": 0.5, "cutoff_offset": 0.2, "metric": "ndcg@5"}),
    ("neuralsort", {"temperature": 1e4}),
    ("neuralsort", {"temperature": 0.05}),
    ("pirank", {"temperature": 0.05}),
    ("softsort", {"temperature": 1e-6}),
    ("softsort", {"temperature": 20.0, "metric": "ap"}),
    ("fastsort", {"metric": "ap", "beta": 1.0}),
    ("ot", {"epsilon": 0.5, "metric": "ap"}),
]  # fmt: skip
EVERY = pytest.mark.parametrize(("name", "settings"), CASES, ids=[f"{name}-{s}" for name, s in CASES])


def cut(monkeypatch, block: int, rows: int) -> None:
    monkeypatch.setattr(blocks, "CPU_BLOCK", block)
    monkeypatch.setattr(blocks, "CPU_CALL", block // 8)
    monkeypatch.setattr(soft_ranks, "ROWS", rows)
    monkeypatch.setattr(sorting, "ROWS", rows)


@EVERY
def test_values_and_gradients_are_those_of_the_graph(name: str, settings: dict, monkeypatch) -> None:
    for documents in (23, 2):
        scores, labels, mask = ragged_lists(documents)
        expected = value_and_gradient(partial(loss_of, name), scores, labels, mask, **settings)
        for block, rows in ((1, 5), (700, 4), (2**20, 64)) if documents == 23 else ((1, 1),):
            cut(monkeypatch, block, rows)
            values, gradient = value_and_gradient(LOSSES[name], scores, labels, mask, **settings)
            torch.testing.assert_close(values, expected[0], rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(gradient, expected[1], rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        unwatched = LOSSES[name](scores, labels, mask, **settings)
    assert not unwatched.requires_grad
    torch.testing.assert_close(unwatched, values, rtol=1e-14, atol=0)


@EVERY
def test_float32_is_near_float64(name: str, settings: dict) -> None:
    scores, labels, mask = ragged_lists(61, torch.float32)
    values, gradient = value_and_gradient(LOSSES[name], scores, labels, mask, **settings)
    expected = value_and_gradient(LOSSES[name], scores.double(), labels, mask, **settings)
    torch.testing.assert_close(values.double(), expected[0], rtol=0, atol=1e-4)
    torch.testing.assert_close(gradient.double(), expected[1], rtol=0, atol=2e-3 * expected[1].abs().max().item())


@EVERY
def test_a_score_that_is_no_number_shows_in_its_list_only(name: str, settings: dict) -> None:
    scores, labels, mask = ragged_lists(23)
    broken = scores.detach().clone()
    broken[0, 3] = torch.nan
    expected = LOSSES[name](scores.detach(), labels, mask, **settings)
    values = LOSSES[name](broken, labels, mask, **settings)
    assert values[0].isnan()
    torch.testing.assert_close(values[1:], expected[1:], rtol=1e-12, atol=1e-14)


class Largest(TorchDispatchMode):
    """The most numbers in the result of any operation."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [leaf.untyped_storage().nbytes() // leaf.element_size() for leaf in tree_leaves(result)
                if isinstance(leaf, torch.Tensor)]  # fmt: skip
        self.numbers = max(self.numbers, *made, 0)
        return result


@EVERY
def test_no_intermediate_result_is_larger_than_a_block(name: str, settings: dict, monkeypatch) -> None:
    cut(monkeypatch, 8_000, 64)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(16, 60, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, 3, (16, 60), generator=generator)
    with Largest() as watched:
        LOSSES[name](scores, labels, **settings).sum().backward()
    assert scores.grad is not None
    # 16 lists of 60 documents have 57,600 pairs.
    assert watched.numbers <= 8_000


def test_neural_ndcg_keeps_a_few_copies_of_its_indicators_for_the_gradient() -> None:
    scores, kept = torch.randn(1, 60, generator=torch.Generator().manual_seed(0)).requires_grad_(), {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        LOSSES["neural_ndcg"](scores, torch.arange(60)[None] % 3)
    assert sum(tensor.numel() for tensor in kept.values()) < 10 * 60**2  # and not those of each of 100 scalings


@pytest.mark.parametrize("scale", [1e30, 1e34])
def test_differences_beyond_float32_are_far_apart_and_no_more(scale: float) -> None:
    scores = torch.tensor([[scale, -scale, 0.0]]).requires_grad_()
    places = soft_ranks.approx_soft_ranks(scores, torch.ones(1, 3, dtype=torch.bool), 1e3)
    assert places.tolist() == [[1.0, 3.0, 2.0]]
    assert not torch.autograd.grad(places[0, 0], scores)[0].any()


def test_lists_share_a_block_by_length_and_idle_ones_are_left_out(monkeypatch) -> None:
    monkeypatch.setattr(blocks, "CPU_BLOCK", 12)
    # The lists have 5, 3, 2 and 2 documents.
    assert seen_in_blocks() == [[[5, 6, 7, 8, 9], [11, 13, 14, -1, -1]], [[0, 1], [15, 19]]]


def test_a_block_ends_where_that_saves_more_padding_than_another_costs(monkeypatch) -> None:
    monkeypatch.setattr(blocks, "CPU_CALL", 6)
    assert len(seen_in_blocks()) == 1
    monkeypatch.setattr(blocks, "CPU_CALL", 5)
    assert seen_in_blocks() == [[[5, 6, 7, 8, 9]], [[11, 13, 14], [0, 1, -1], [15, 19, -1]]]


def seen_in_blocks() -> list:
    """The scores of each block, -1 on padding; the values and the gradient are held to those without blocks."""
    mask = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [1, 0, 0, 0, 1], [1, 1, 1, 1, 1]]).bool()
    scores = torch.arange(25.0).view(5, 5).requires_grad_()
    degenerate = torch.tensor([False, False, False, False, True])
    seen = []

    def loss(part, labels, real):
        seen.append(torch.where(real, part, -1).tolist())
        return (part * labels * real).sum(dim=1)

    labels = torch.arange(1.0, 26.0).view(5, 5)
    values = in_blocks(loss, scores, labels, mask, degenerate, lambda documents: documents)
    values.sum().backward()
    torch.testing.assert_close(values, (scores * labels * mask).sum(dim=1).masked_fill(degenerate, 0))
    torch.testing.assert_close(scores.grad, (labels * mask).masked_fill(degenerate[:, None], 0))
    return seen
