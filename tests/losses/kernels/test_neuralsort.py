"""The band of NeuralSort's permutation that is computed; `test_blocks` has the values."""

import torch

from rerank.losses.kernels import neuralsort as neuralsort_bands
from rerank.losses.kernels.neuralsort import neuralsort_ranked


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
