"""The operators: rank indicators, soft ranks and the transport plan."""

import pytest
import torch

from rerank.losses import (
    approx_soft_ranks,
    fast_soft_ranks,
    neuralsort_indicators,
    rank_indicators,
    soft_permutation,
)

OPERATORS = [rank_indicators, neuralsort_indicators, soft_permutation]
SCORES = torch.tensor([[0.3, 1.5, 0.9, torch.nan], [2.0, 0.1, 0.6, 1.1]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]).bool()


@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_are_distributions_over_the_real_documents(operator) -> None:
    rows = operator(SCORES, MASK)
    assert rows.shape == (2, 4, 4)
    torch.testing.assert_close(rows.sum(dim=2), torch.tensor([[1.0, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.float64))
    assert (rows[0, :, 3] == 0).all()
    assert (rows >= 0).all()


def test_the_first_k_ranks_are_those_of_all() -> None:
    torch.testing.assert_close(rank_indicators(SCORES, MASK, k=2), rank_indicators(SCORES, MASK)[:, :2])
    assert rank_indicators(SCORES, MASK, k=99).shape == (2, 4, 4)
    with pytest.raises(ValueError, match="k must be 1 or more"):
        rank_indicators(SCORES, MASK, k=0)


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


@pytest.mark.parametrize("operator", [*OPERATORS, approx_soft_ranks, fast_soft_ranks])
@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0, 0)])
def test_no_list_and_no_document_are_no_mistake(operator, shape: tuple[int, int]) -> None:
    scores = torch.zeros(shape, requires_grad=True)
    found = operator(scores)
    found.sum().backward()
    assert found.shape == (*shape, *shape[1:] * (operator in OPERATORS))
    assert scores.grad.shape == shape


def test_sharp_indicators_and_soft_ranks_are_those_of_the_sorted_scores() -> None:
    rows = rank_indicators(SCORES, MASK, alpha=1e4)
    ranked = (rows * SCORES.masked_fill(~MASK, 0)[:, None]).sum(dim=2)
    torch.testing.assert_close(ranked[0], torch.tensor([1.5, 0.9, 0.3, 0], dtype=torch.float64))
    ranks = torch.tensor([[3.0, 1, 2, 0], [1, 4, 3, 2]], dtype=torch.float64)
    torch.testing.assert_close((rows * torch.arange(1, 5)[:, None]).sum(dim=1), ranks)
    torch.testing.assert_close(approx_soft_ranks(SCORES, MASK, alpha=1e3), ranks)
