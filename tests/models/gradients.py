"""The scores and gradients of a model, and whether those of two ways to compute them are the same."""

import torch


def scores_and_gradients(model, inputs):
    """The scores of passages, and the gradients of the parameters by name of a sum in which each counts differently."""
    model.zero_grad()
    scores = model(inputs)
    (scores * torch.arange(1, len(scores) + 1)).sum().backward()
    return scores.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same_gradients(found, expected, tolerance=1e-4):
    """No number differs by more than a part of the largest one."""
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=tolerance * largest, rtol=0)
