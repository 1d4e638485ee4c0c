"""Sharp settings give the true metric, and each loss really improves a ranking."""

import math

import pytest
import pytrec_eval
import torch
from torch import Tensor

from rerank.losses import LABELS, LOSSES, exact_metric

SHARP = {
    "smoothi": {"alpha": 1e10},
    "neuralsort": {"temperature": 1e-3},
    "pirank": {"temperature": 1e-3},
    "neural_ndcg": {"temperature": 1e-3},
    "softsort": {"temperature": 1e-3},
    "approx": {"alpha": 1e3, "beta": 1e3},
    "fastsort": {"strength": 1e-3, "beta": 1e3},
    "ot": {"epsilon": 1e-6, "beta": 1e3},
}


def separated_lists(documents: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Four lists with scores 1, 2, ... in random order and labels 0 to 2."""
    generator = torch.Generator().manual_seed(documents)
    scores = torch.rand(4, documents, generator=generator).argsort(dim=1) + 1
    labels = torch.randint(0, 3, (4, documents), generator=generator)
    labels[:, 0] = 1
    return scores.to(dtype), labels


def trec_eval(scores: Tensor, labels: Tensor, measure: str) -> list[float]:
    qrels = {str(q): {str(d): int(label) for d, label in enumerate(row)} for q, row in enumerate(labels.tolist())}
    run = {str(q): {str(d): score for d, score in enumerate(row)} for q, row in enumerate(scores.tolist())}
    results = pytrec_eval.RelevanceEvaluator(qrels, {measure}).evaluate(run)
    return [results[str(q)][measure] for q in range(len(scores))]


def dcg(labels: list[int], k: int) -> float:
    return sum((2**label - 1) / math.log2(1 + r) for r, label in enumerate(labels[:k], 1))


def test_exact_is_trec_eval() -> None:
    for documents in (4, 30, 150):
        scores, labels = separated_lists(documents)
        for metric, measure in (("p@5", "P_5"), ("P@200", "P_200"), ("ap", "map"), ("AP", "map"), ("rr", "recip_rank")):
            expected = torch.tensor(trec_eval(scores, labels, measure), dtype=torch.float64)
            torch.testing.assert_close(exact_metric(scores, labels, metric=metric), expected)


def test_exact_ndcg_has_gain_two_to_the_label_minus_one() -> None:
    scores, labels = separated_lists(30)
    for metric, k in (("ndcg", 30), ("ndcg@5", 5), ("ndcg@1000", 1000)):
        values = exact_metric(scores, labels, metric=metric)
        for value, row, s in zip(values, labels.tolist(), scores.tolist(), strict=True):
            ranked = [label for _, label in sorted(zip(s, row, strict=True), reverse=True)]
            assert value.item() == pytest.approx(dcg(ranked, k) / dcg(sorted(row, reverse=True), k), rel=1e-12)


def test_exact_takes_padding_empty_and_single_lists() -> None:
    scores = torch.tensor([[1.0, torch.nan, 3.0], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    labels = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 0]])
    mask = torch.tensor([[1, 0, 1], [1, 1, 1], [1, 0, 0]]).bool()
    assert exact_metric(scores, labels, mask, metric="ap").tolist() == [0.5, 0.0, 1.0]
    assert exact_metric(scores[:, :0], labels[:, :0]).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(TypeError, match=r"labels: expected a tensor \(lists, documents\), got list"):
        exact_metric(scores, [[1, 1, 0]])


METRICS = ("p@3", "ap", "ndcg", "ndcg@5", "p@200", "rr", "rr@2")


@pytest.mark.parametrize("name", SHARP)
def test_sharp_losses_are_one_minus_the_true_metric(name: str) -> None:
    # Transport never quite separates neighbours: 150 targets are 1 / 149 apart.
    tolerance = 1e-5 if name == "ot" else 1e-9
    for documents in (4, 150):
        scores, labels = separated_lists(documents)
        for metric in METRICS if documents == 4 else ("ap", "ndcg@5"):
            values = LOSSES[name](scores, labels, metric=metric, **SHARP[name])
            torch.testing.assert_close(values, 1 - exact_metric(scores, labels, metric=metric), rtol=0, atol=tolerance)


# Gradient descent on free scores: the learning rate and the settings of each loss, and of 16 lists how many must be
# sorted; `docs/papers.md` says why not all of them where it is less. A loss without a row sorts lists of two grades.
DESCENT = {
    "smoothi": (10.0, {}, 16),
    "approx": (10.0, {}, 16),
    "neuralsort": (150.0, {"temperature": 4.0}, 11),
    "pirank": (150.0, {"temperature": 4.0}, 11),
    "neural_ndcg": (150.0, {"temperature": 4.0}, 11),
    "softsort": (300.0, {"temperature": 2.0}, 14),
    "fastsort": (30.0, {"strength": 1.0}, 16),
    "ot": (10.0, {"epsilon": 0.01}, 16),
    "listnet": (1.0, {}, 16),
    "listmle": (1.0, {}, 16),
    "lambda_loss": (1.0, {}, 16),
    "hinge": (1.0, {}, 16),
    "ranknet": (1.0, {}, 16),
    "softmax": (1.0, {}, 16),
    "pairwise_softmax": (10.0, {}, 16),
    "listap": (10.0, {"low": -5.0, "high": 5.0, "bins": 4}, 15),
    "margin_mse": (1.0, {}, 16),
    "distill_kl": (5.0, {}, 16),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_descent_on_free_scores_sorts_the_lists(name: str) -> None:
    """By their labels, or in exactly the teacher's order."""
    rate, settings, sorted_lists = DESCENT.get(name, (1.0, {}, 16))
    generator = torch.Generator().manual_seed(0)
    if LABELS[name] == "judgments":
        labels = torch.randint(0, 2 if name == "listap" or name not in DESCENT else 4, (16, 10), generator=generator)
        labels[:, 0] = 1
    else:
        labels = torch.randn(16, 10, generator=generator) - 3
    scores = torch.randn(16, 10, generator=generator).requires_grad_()

    def in_order() -> int:
        if LABELS[name] == "judgments":
            return int((exact_metric(scores, labels) > 0.95).sum())
        return int((scores.argsort(dim=1) == labels.argsort(dim=1)).all(dim=1).sum())

    assert in_order() <= 4
    optimizer = torch.optim.SGD([scores], lr=rate)
    for _ in range(200):
        optimizer.zero_grad()
        LOSSES[name](scores, labels, **settings).sum().backward()
        optimizer.step()
        if in_order() >= sorted_lists:
            return
    raise AssertionError(f"{in_order()} of 16 lists are sorted, expected {sorted_lists}")
