"""Losses over pairs in blocks: lists longer than a block against loops, and any size of the blocks."""

import pytest
import torch

from rerank.losses import LOSSES
from rerank.losses.kernels import blocks
from tests.losses import loops
from tests.losses.graphs import ragged_lists, value_and_gradient

CASES = [
    ("hinge", {"margin": 0.3}),
    ("ranknet", {}),
    ("pairwise_softmax", {}),
    *[("lambda_loss", {"metric": m}) for m in ("ndcg", "ndcg@3", "ndcg@70", "p@5", "p@70", "p@500", "ap")],
]
EVERY = pytest.mark.parametrize(("name", "settings"), CASES, ids=[f"{name}-{s}" for name, s in CASES])


@EVERY
def test_a_list_of_several_blocks_is_the_loop(name: str, settings: dict) -> None:
    scores, labels, mask = ragged_lists(blocks.PAIR_ROWS + 9)
    values, gradient = value_and_gradient(LOSSES[name], scores, labels, mask, **settings)
    for i in (1, 4):
        row = [s.detach().clone().requires_grad_() for s in scores[i, mask[i]]]
        value = getattr(loops, name)(row, labels[i, mask[i]].tolist(), **settings)
        torch.testing.assert_close(values[i], value.detach())
        parts = torch.autograd.grad(value, row, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(gradient[i, mask[i]], (i + 1) * torch.stack(parts), rtol=1e-9, atol=1e-12)


@EVERY
@pytest.mark.parametrize(("factor", "extreme"), [(1, 1e5), (1.3, 1.0)])
def test_the_size_of_the_blocks_changes_nothing(
    name: str, settings: dict, factor: float, extreme: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, labels, mask = ragged_lists(40)
    scores, labels = scores * extreme, labels * factor
    expected = value_and_gradient(LOSSES[name], scores, labels, mask, **settings)
    # p@K beyond the list has no pair across K.
    assert expected[0].any() == (settings.get("metric") not in ("p@70", "p@500"))
    assert expected[0].isfinite().all()
    for rows, block in ((1, 1), (3, 10), (7, 600), (64, 1)):
        monkeypatch.setattr(blocks, "PAIR_ROWS", rows)
        monkeypatch.setattr(blocks, "PAIR_BLOCK", block)
        got = value_and_gradient(LOSSES[name], scores, labels, mask, **settings)
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-13)
