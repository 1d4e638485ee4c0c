"""Values and gradients of every loss against plain loops over the equations, and gradcheck."""

import math

import pytest
import torch

from rerank.losses import LABELS, LOSSES, exact_metric, highest_grade
from rerank.utils.registry import hyperparameters
from tests.losses import loops

METRICS = ["ndcg", "ndcg@3", "ndcg@100", "p@2", "p@100", "ap", "rr", "rr@3"]
FEW = ["ndcg@3", "p@2", "ap", "rr@3"]
"""Where a loop takes long, or another case has the same code for the metric."""
CASES = [
    *[("smoothi", {"metric": m}) for m in METRICS],
    *[("smoothi", {"metric": m, "alpha": 3.0, "delta": 0.3}) for m in FEW],
    ("smoothi", {"metric": "ndcg", "alpha": 2.0, "stop_gradient": False}),
    ("smoothi", {"metric": "ap", "alpha": 2.0, "stop_gradient": False}),
    *[("approx", {"metric": m, "alpha": 2.0, "beta": 1.5, "cutoff_offset": 0.3}) for m in METRICS],
    *[("neuralsort", {"metric": m, "temperature": 3.0}) for m in METRICS],
    *[("pirank", {"metric": m, "temperature": 3.0}) for m in METRICS],
    *[("neural_ndcg", {"metric": m, "temperature": 3.0}) for m in FEW],
    *[("softsort", {"metric": m, "temperature": 0.7}) for m in METRICS],
    *[("fastsort", {"metric": m, "strength": 0.5, "beta": 2.0}) for m in METRICS],
    *[("ot", {"metric": m, "epsilon": 0.1, "beta": 2.0}) for m in FEW],
    ("listnet", {}),
    ("softmax", {}),
    ("listmle", {}),
    ("listap", {}),
    ("listap", {"bins": 7, "low": -2.0, "high": 3.0}),
    *[("lambda_loss", {"metric": m}) for m in METRICS],
    *[("lambda_loss", {"metric": m, "weighting": "lambda_rank"}) for m in ("ndcg", "ndcg@3")],
    *[("lambda_loss", {"metric": m, "weighting": "ndcg_loss2++", "mu": 3.0}) for m in ("ndcg", "ndcg@3")],
    ("hinge", {}),
    ("hinge", {"margin": 0.3}),
    ("hinge", {"pairs": "matched"}),
    ("hinge", {"pairs": "matched", "margin": 0.3}),
    ("ranknet", {}),
    ("pairwise_softmax", {}),
    ("margin_mse", {}),
    ("distill_kl", {}),
    ("distill_kl", {"temperature": 2.5}),
    ("rank_distil", {}),
    ("adr_mse", {}),
    ("adr_mse", {"alpha": 3.0}),
    ("bce", {}),
    ("mse", {}),
]
JUDGMENTS = [[2, 0, 1, 0, 3, 0, 0], [0, 1, 0, 0, 1], [1, 0], [0, 0, 0, 4, 0, 2], [2, 1, 1, 2]]


def labels_for(name: str, judgments: list[int]) -> list[float]:
    """The judgments, or a teacher's scores, some of them below 0."""
    return [label if LABELS[name] == "judgments" else 1.7 * label - 2.2 for label in map(float, judgments)]


def random_lists(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Five lists of two to seven documents, NaN on the padding."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(len(JUDGMENTS), 7, generator=generator, dtype=torch.float64)
    mask = torch.tensor([[i < len(labels) for i in range(7)] for labels in JUDGMENTS])
    padded = [labels_for(name, [*labels, *[9] * (7 - len(labels))]) for labels in JUDGMENTS]
    labels = torch.tensor(padded, dtype=torch.float64)
    return scores.masked_fill(~mask, torch.nan).requires_grad_(), labels, mask


@pytest.mark.parametrize(("name", "settings"), CASES, ids=[f"{name}-{s}" for name, s in CASES])
def test_values_and_gradients_are_those_of_the_loops(name: str, settings: dict) -> None:
    scores, labels, mask = random_lists(name)
    values = LOSSES[name](scores, labels, mask, **settings)
    (gradient,) = torch.autograd.grad(values.sum(), scores)
    assert values.dtype == torch.float64

    for i, y in enumerate(JUDGMENTS):
        row = [scores[i, j].detach().clone().requires_grad_() for j in range(len(y))]
        value = getattr(loops, name)(row, labels_for(name, y), **settings)
        # The documents that no term mentions have no gradient.
        parts = torch.autograd.grad(value, row, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(values[i], value.to(torch.float64), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(gradient[i, : len(y)], torch.stack(parts), rtol=1e-6, atol=1e-10)
        assert (gradient[i, len(y) :] == 0).all()


HIGH = [[600, 0, 599, 0, 1], [60, 0, 0, 100], [31, 30, 0, 29]]
"""Grades whose gains, 2^grade, leave the range of float32, or its 24 bits."""


@pytest.mark.parametrize("name", [name for name in LOSSES if LABELS[name] == "judgments"])
def test_high_grades_overflow_no_loss(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for y in HIGH:
        scores = torch.randn(1, len(y), generator=generator).requires_grad_()
        settings = {"epsilon": 0.1} if name == "ot" else {}
        (value,) = LOSSES[name](scores, torch.tensor([y]), **settings)
        (gradient,) = torch.autograd.grad(value, scores)
        row = [score.detach().double().requires_grad_() for score in scores[0]]
        expected = getattr(loops, name)(row, list(map(float, y)), **settings)
        parts = torch.autograd.grad(expected, row, allow_unused=True, materialize_grads=True)
        torch.testing.assert_close(value.double(), expected.double(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient[0].double(), torch.stack(parts), rtol=1e-4, atol=1e-5)


def test_high_grades_have_their_ndcg() -> None:
    ndcg = exact_metric(torch.tensor([[2.0, 1.0, 3.0]]), torch.tensor([[360, 0, 359]]))
    assert ndcg.item() == pytest.approx((0.5 + 1 / math.log2(3)) / (1 + 0.5 / math.log2(3)))


def test_a_loss_with_the_gain_of_an_expected_label_learns_from_grades_up_to_the_highest() -> None:
    """At equal scores, one relevant document of 100: the gradient is at least 1 % of that of grade 1."""
    for name in LOSSES:
        if LABELS[name] == "judgments" and "metric" in hyperparameters(LOSSES[name]):
            highest = highest_grade(name)
            pulls = {grade: _pull(name, grade) for grade in (1, min(highest, 1000), highest + 1)}
            assert pulls[min(highest, 1000)] >= 0.01 * pulls[1]
            assert (highest == 10) == (pulls[highest + 1] < 0.01 * pulls[1])
    assert highest_grade("smoothi", {"metric": "ap"}) == 2**24


def _pull(name: str, grade: int) -> float:
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn(1, 100, generator=generator) / 100).requires_grad_()
    labels = torch.zeros(1, 100)
    labels[0, 50] = grade
    (gradient,) = torch.autograd.grad(LOSSES[name](scores, labels).sum(), scores)
    return float(gradient.norm())
