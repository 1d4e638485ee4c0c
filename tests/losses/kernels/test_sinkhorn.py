"""The two ways to solve for a Newton step of the transport plan agree, and the second takes over from the first."""

import pytest
import torch

from rerank.losses import soft_permutation
from rerank.losses.kernels import sinkhorn


def make_plan(epsilon: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 30, generator=generator, dtype=torch.float64)
    mask = torch.arange(30) < torch.tensor([30, 17, 9])[:, None]
    right = torch.randn(3, 30, generator=generator, dtype=torch.float64).masked_fill(~mask, 0)
    right = (right - right.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True)).masked_fill(~mask, 0)
    right[0] *= 1e9
    return soft_permutation(scores, mask, epsilon), mask, right


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.03])
def test_conjugate_gradients_are_elimination(epsilon: float) -> None:
    plan, mask, right = make_plan(epsilon)
    solution, solved = sinkhorn._conjugate_gradients(plan, mask, right)
    expected = sinkhorn._direct(plan, mask, right)
    assert solved.all()
    for given, wanted, real in zip(solution, expected, mask, strict=True):
        given, wanted = given[real] - given[real].mean(), wanted[real] - wanted[real].mean()
        torch.testing.assert_close(given, wanted, rtol=0, atol=1e-10 * wanted.abs().max().item())


def test_nothing_to_solve_is_solved_by_0() -> None:
    plan, mask, right = make_plan(0.1)
    right[1] = 0
    solution, solved = sinkhorn._conjugate_gradients(plan, mask, right)
    assert solved.all()
    assert solution.isfinite().all()
    assert not solution[1].any()


def test_elimination_takes_over_where_the_plan_is_nearly_a_permutation() -> None:
    plan, mask, right = make_plan(1e-5)
    _, solved = sinkhorn._conjugate_gradients(plan, mask, right)
    assert not solved[0]
    solution = sinkhorn._newton(plan, mask, right)
    assert torch.equal(solution[~solved], sinkhorn._direct(plan[~solved], mask[~solved], right[~solved]))


def test_elimination_of_long_lists_with_several_threads() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        scores = torch.randn(2, 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        plan, mask = soft_permutation(scores, None, 0.01), torch.ones(2, 200, dtype=torch.bool)
        right = scores - scores.mean(dim=1, keepdim=True)
        solution = sinkhorn._direct(plan, mask, right)
    finally:
        torch.set_num_threads(threads)
    image = plan.sum(dim=1) * solution - (solution[:, None] @ plan.mT @ plan).squeeze(1)
    torch.testing.assert_close(image, right, rtol=1e-9, atol=1e-9)
