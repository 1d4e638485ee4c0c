"""SoftSort's expected labels by scans against the operator."""

import pytest
import torch

from rerank.losses import softsort_indicators
from rerank.losses.kernels.softsort import softsort_ranked
from tests.losses.graphs import ragged_lists


@pytest.mark.parametrize("temperature", [1e-6, 0.1, 1.0, 1e4])
@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("documents", [1, 2, 31, 33])
def test_expected_labels_are_those_of_the_operator(temperature: float, count: int, documents: int) -> None:
    scores, labels, mask = ragged_lists(documents)
    labels = labels.double().masked_fill(~mask, 0)
    clean = scores.detach().masked_fill(~mask, 0).requires_grad_()
    ranked = softsort_ranked(clean, labels, mask, temperature, count)
    expected = (softsort_indicators(clean, mask, temperature, k=count) * labels[:, None]).sum(dim=2)
    torch.testing.assert_close(ranked, expected, rtol=1e-12, atol=1e-13)
    weights = torch.randn(ranked.shape, generator=torch.Generator().manual_seed(0), dtype=ranked.dtype)
    gradients = [torch.autograd.grad((given * weights).sum(), clean)[0] for given in (ranked, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-11)
