"""The operators, and the applications of rank indicators in `extras`: sorting, ranks, k-NN."""

import pytest
import torch
from torch import Tensor

from rerank.losses import (
    approx_soft_ranks,
    neuralsort_indicators,
    rank_indicators,
    soft_permutation,
    softsort_indicators,
)
from rerank.losses.extras import knn, soft_ranking, soft_ranks, soft_sort

OPERATORS = [rank_indicators, neuralsort_indicators, softsort_indicators, soft_permutation]
SCORES = torch.tensor([[0.3, 1.5, 0.9, torch.nan], [2.0, 0.1, 0.6, 1.1]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]).bool()


@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_are_distributions_over_the_real_documents(operator) -> None:
    rows = operator(SCORES, MASK)
    assert rows.shape == (2, 4, 4)
    torch.testing.assert_close(rows.sum(dim=2), torch.tensor([[1.0, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.float64))
    assert (rows[0, :, 3] == 0).all()
    assert (rows >= 0).all()


@pytest.mark.parametrize("operator", [rank_indicators, neuralsort_indicators, softsort_indicators])
def test_the_first_k_ranks_are_those_of_all(operator) -> None:
    torch.testing.assert_close(operator(SCORES, MASK, k=2), operator(SCORES, MASK)[:, :2])
    assert operator(SCORES, MASK, k=99).shape == (2, 4, 4)
    with pytest.raises(ValueError, match="k must be 1 or more"):
        operator(SCORES, MASK, k=0)


@pytest.mark.parametrize("documents", [2, 25])
def test_the_transport_plan_has_unit_marginals(documents: int) -> None:
    scores = torch.randn(4, documents, generator=torch.Generator().manual_seed(0))
    scores[1, : documents // 2] = scores[1, 0]
    for epsilon in (1.0, 1e-2, 1e-5):
        plan = soft_permutation(scores, None, epsilon)
        for dim in (1, 2):
            torch.testing.assert_close(plan.sum(dim=dim), torch.ones(4, documents))


def test_the_transport_plan_of_a_list_that_is_all_masked_is_0() -> None:
    assert not soft_permutation(SCORES, torch.zeros_like(MASK)).any()


def sharp(scores: Tensor, mask: Tensor) -> Tensor:
    return rank_indicators(scores, mask, alpha=1e4)


def test_soft_sort_ranks_and_ranking_of_sharp_indicators() -> None:
    rows = sharp(SCORES, MASK)
    scores = SCORES.masked_fill(~MASK, 0)
    torch.testing.assert_close(soft_sort(rows, scores)[0, :3], torch.tensor([1.5, 0.9, 0.3], dtype=torch.float64))
    expected = torch.tensor([[3.0, 1, 2, 0], [1, 4, 3, 2]], dtype=torch.float64)
    torch.testing.assert_close(soft_ranks(rows), expected)
    documents = torch.stack([scores, 10 * scores], dim=2)
    torch.testing.assert_close(soft_ranking(rows, documents)[1, 0], torch.tensor([2.0, 20.0], dtype=torch.float64))
    torch.testing.assert_close(approx_soft_ranks(SCORES, MASK, alpha=1e3), expected)


def test_knn_counts_the_neighbours_of_the_same_class() -> None:
    queries = torch.tensor([[0.0, 0.0]]).requires_grad_()
    neighbours = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [5.0, 5.0], [0.1, 0.1]]])
    classes = torch.tensor([[7, 3, 3, 3]])
    loss = knn(queries, neighbours, torch.tensor([3]), classes, k=2, alpha=1e3)
    torch.testing.assert_close(loss, torch.tensor([0.5]))
    soft = knn(queries, neighbours, torch.tensor([3]), classes, k=2)
    (gradient,) = torch.autograd.grad(soft.sum(), queries)
    assert gradient.isfinite().all()
    assert gradient.any()

    wide = torch.cat([neighbours, torch.full((1, 2, 2), torch.nan)], dim=1)
    classes, mask = torch.tensor([[7, 3, 3, 3, 3, 3]]), torch.tensor([[1, 1, 1, 1, 0, 0]])
    padded = knn(queries, wide, torch.tensor([3]), classes, mask, k=2)
    torch.testing.assert_close(padded, soft)
    torch.testing.assert_close(torch.autograd.grad(padded.sum(), queries)[0], gradient)
