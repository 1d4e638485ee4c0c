"""NeuralSort's expected labels against the operator, where the band is all, some or one of the documents."""

import pytest
import torch

from rerank.losses import neuralsort_indicators
from rerank.losses.kernels import neuralsort as neuralsort_bands
from rerank.losses.kernels.neuralsort import neuralsort_ranked
from tests.losses.graphs import ragged_lists


@pytest.mark.parametrize("temperature", [1e-4, 0.3, 10.0, 1e4])
@pytest.mark.parametrize("count", [3, 40])
def test_expected_labels_are_those_of_the_operator(temperature: float, count: int, monkeypatch) -> None:
    monkeypatch.setattr(neuralsort_bands, "ROWS", 7)
    scores, labels, mask = ragged_lists(40)
    scores, labels, mask = scores.detach()[:5], labels[:5].double(), mask[:5]
    clean, labels = scores.masked_fill(~mask, 0).requires_grad_(), labels.masked_fill(~mask, 0)
    ranked = neuralsort_ranked(clean, labels, mask, temperature, count)
    expected = (neuralsort_indicators(clean, mask, temperature, count) * labels[:, None]).sum(dim=2)
    torch.testing.assert_close(ranked, expected, rtol=1e-10, atol=1e-11)
    weights = torch.randn(ranked.shape, generator=torch.Generator().manual_seed(0), dtype=ranked.dtype)
    gradients = [torch.autograd.grad((given * weights).sum(), clean)[0] for given in (ranked, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-8, atol=1e-9 / min(temperature, 1))


def test_the_band_is_narrow_where_scores_are_apart_and_all_of_it_where_they_are_not(monkeypatch) -> None:
    monkeypatch.setattr(neuralsort_bands, "ROWS", 10)
    bands = []
    found = neuralsort_bands._bands
    monkeypatch.setattr(neuralsort_bands, "_bands", lambda *given: bands.append(found(*given)) or bands[-1])
    scores = torch.arange(40.0, dtype=torch.float64)[None]
    for scale in (1.0, 100.0, 1e-6):
        neuralsort_ranked(scores * scale, scores, torch.ones(1, 40, dtype=torch.bool), 1.0, 40)
    # Seven neighbours up or down are 49 below the largest logit, eight are 64.
    assert bands[0] == [(0, 17), (3, 27), (13, 37), (23, 40)]
    assert bands[1] == [(0, 10), (10, 20), (20, 30), (30, 40)]
    assert bands[2] == [(0, 40)] * 4
