"""Plots the error of SmoothI's rank indicators against alpha, with the bound of Theorem 2 where (C1) holds.

    python -m scripts.paper.smoothi_error smoothi_error.png

The vertical axis is logarithmic, so that exponential decay is a straight line.
"""

import math
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

from rerank.losses import rank_indicators

DELTA = 0.1
SCORES = torch.tensor([[1.0, 2.0, 3.5, 5.5, 8.0]], dtype=torch.float64)


def errors(k: int, alphas: torch.Tensor) -> list[float]:
    """The largest |I - true I| over the first k ranks, for each alpha."""
    true = torch.nn.functional.one_hot(SCORES[0].argsort(descending=True)[:k], SCORES.shape[1])
    return [(rank_indicators(SCORES, None, k, a, DELTA)[0] - true).abs().max().item() for a in alphas.tolist()]


def theorem(k: int) -> tuple[float, float]:
    """The smallest alpha of (C1) and the rate of the bound (k - 1) exp(-alpha rate)."""
    ranked = SCORES[0].sort(descending=True).values
    beta = (ranked[:-1] / ranked[1:]).min().item()
    c = ((beta + 1) / 2) ** (1 / (k - 1))
    gamma = min(DELTA, 0.5 - DELTA, (1 - DELTA) * (c - 1) / (c + 1))
    rate = ranked[-1].item() / 2 ** (k - 1) * min(1, (beta - 1) / 2)
    return (math.log(k - 1) - math.log(gamma)) / rate, rate


def main(path: str) -> None:
    """Draws one line for each K and saves the figure."""
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for colour, k in enumerate((2, 3)):
        alphas = torch.linspace(1, 150, 300, dtype=torch.float64)
        axes.plot(alphas, errors(k, alphas), color=f"C{colour}", label=f"K = {k}")
        start, rate = theorem(k)
        valid = alphas[alphas > start]
        axes.plot(valid, (k - 1) * torch.exp(-valid * rate), "--", color=f"C{colour}", label=f"bound, K = {k}")
    axes.set(yscale="log", ylim=(1e-16, 2), xlabel="alpha", ylabel="largest error of a rank indicator")
    axes.set_title(f"SmoothI, scores {', '.join(f'{s:g}' for s in SCORES[0].tolist())}, delta = {DELTA}")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m scripts.paper.smoothi_error OUT.png")
    main(sys.argv[1])
