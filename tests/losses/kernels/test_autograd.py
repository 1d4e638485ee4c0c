"""A gradient that comes with its value, in autograd."""

import pytest
import torch

from rerank.losses.kernels.autograd import wants_gradient, with_gradient


def test_the_gradient_is_scaled_list_by_list_and_flows_on() -> None:
    scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    values = with_gradient(2 * scores, torch.tensor([5.0, 6.0]), torch.tensor([[1.0, -1.0], [0.5, 0.0]]))
    assert values.tolist() == [5, 6]
    (values * torch.tensor([1.0, 10.0])).sum().backward()
    assert scores.grad.tolist() == [[2, -2], [10, 0]]


def test_it_has_no_second_derivative() -> None:
    scores = torch.zeros(1, 2, requires_grad=True)
    values = with_gradient(scores, torch.ones(1), torch.ones(1, 2))
    (gradient,) = torch.autograd.grad((values**2).sum(), scores, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_without_a_gradient_the_values_are_plain() -> None:
    scores = torch.zeros(1, 2, requires_grad=True)
    assert wants_gradient(scores)
    assert not wants_gradient(scores.detach())
    with torch.no_grad():
        assert not wants_gradient(scores)
        assert not with_gradient(scores, torch.ones(1), torch.ones(1, 2)).requires_grad
    assert not with_gradient(scores, torch.ones(1), None).requires_grad
