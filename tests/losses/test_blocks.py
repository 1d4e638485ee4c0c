"""Every loss in blocks against its graph, whatever the size of the blocks and the tiles."""

from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rerank.losses import LOSSES, soft_ranks, sorting
from rerank.losses.kernels import blocks
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


class Work(TorchDispatchMode):
    """The number of operations, the numbers in all their results, and the most in one of them."""

    operations = numbers = largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [leaf.untyped_storage().nbytes() // leaf.element_size() for leaf in tree_leaves(result)
                if isinstance(leaf, torch.Tensor)]  # fmt: skip
        self.operations += 1
        self.numbers += sum(made)
        self.largest = max(self.largest, *made, 0)
        return result


@EVERY
def test_no_intermediate_result_is_larger_than_a_block(name: str, settings: dict, monkeypatch) -> None:
    cut(monkeypatch, 8_000, 64)
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(16, 60, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, 3, (16, 60), generator=generator)
    with Work() as work:
        LOSSES[name](scores, labels, **settings).sum().backward()
    assert scores.grad is not None
    # 16 lists of 60 documents have 57,600 pairs.
    assert work.largest <= 8_000


def work_for(*lengths: int, idle: int = 0) -> Work:
    """The work of a value and a gradient for lists of these lengths, and for so many that teach nothing."""
    lists, longest = len(lengths) + idle, max(lengths)
    scores = torch.randn(lists, longest, generator=torch.Generator().manual_seed(0)).requires_grad_()
    mask = torch.arange(longest) < torch.tensor([*lengths, *[longest] * idle])[:, None]
    labels = (torch.arange(longest) % 3).repeat(lists, 1)
    labels[len(lengths) :] = 0
    with Work() as work:
        LOSSES["approx"](scores, labels, mask).sum().backward()
    return work


def test_short_lists_are_not_computed_as_wide_as_the_longest() -> None:
    together, alone = work_for(600, *[30] * 15), (work_for(600), work_for(*[30] * 15))
    assert together.numbers < 1.2 * sum(work.numbers for work in alone)


def test_lists_that_teach_nothing_are_not_computed() -> None:
    assert work_for(600, idle=15).numbers < 1.2 * work_for(600).numbers


def test_lists_of_similar_lengths_are_computed_together() -> None:
    assert work_for(*range(20, 30)).operations < 1.2 * work_for(29).operations


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
