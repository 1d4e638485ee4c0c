"""What must hold for every loss: padding, order, independence, ties, extreme scores, types and empty lists."""

import pytest
import torch
from torch import Tensor

from rerank.losses import LABELS, LOSSES
from rerank.utils.registry import hyperparameters

CASES = [
    (name, {"metric": "ndcg@3"} if "metric" in hyperparameters(function) else {}) for name, function in LOSSES.items()
] + [
    ("smoothi", {"alpha": 100.0}),
    ("smoothi", {"metric": "ap"}),
    ("smoothi", {"metric": "rr@3"}),
    ("approx", {"metric": "rr"}),
    ("lambda_loss", {"metric": "rr@3"}),
    ("approx", {"metric": "ap"}),
    ("lambda_loss", {"metric": "ap"}),
    ("lambda_loss", {"weighting": "ndcg_loss2++"}),
    ("distill_kl", {"temperature": 4.0}),
]
EVERY = pytest.mark.parametrize(("name", "settings"), CASES, ids=[f"{name}-{s}" for name, s in CASES])
TAUGHT = [case for case in CASES if LABELS[case[0]] == "scores"]
OF_SCORES = pytest.mark.parametrize(("name", "settings"), TAUGHT, ids=[f"{name}-{s}" for name, s in TAUGHT])


def value_and_gradient(name: str, settings: dict, scores: Tensor, labels: Tensor, mask: Tensor | None = None):
    scores = scores.detach().clone().requires_grad_()
    values = LOSSES[name](scores, labels, mask, **settings)
    assert values.shape == scores.shape[:1]
    (gradient,) = torch.autograd.grad(values.sum(), scores)
    return values.detach(), gradient


def random_lists(
    name: str, lists: int = 6, documents: int = 8, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Labels are a permutation of 0, 1, ... as ListMLE depends on the order of equal labels."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(lists, documents, generator=generator, dtype=torch.float64)
    labels = torch.rand(lists, documents, generator=generator).argsort(dim=1)
    return scores.to(dtype), as_labels(name, labels)


def as_labels(name: str, judgments: Tensor) -> Tensor:
    """Judgments, or for a loss that takes a teacher's scores, scores in the same order, some of them below 0."""
    return judgments if LABELS[name] == "judgments" else judgments.double() * 0.75 - 2


def test_every_loss_is_in_the_battery() -> None:
    assert {name for name, _ in CASES} == set(LOSSES)
    assert {name for name, _ in TAUGHT} == {"adr_mse", "distill_kl", "margin_mse", "rank_distil"}


@EVERY
def test_padding_changes_nothing(name: str, settings: dict) -> None:
    scores, labels = random_lists(name)
    values, gradient = value_and_gradient(name, settings, scores, labels)
    for filler in (torch.nan, torch.inf, 0.0, 1e30):
        wide = torch.full((6, 13), filler, dtype=torch.float64)
        wide_labels = torch.full((6, 13), filler, dtype=torch.float64)
        columns = torch.tensor([0, 2, 3, 5, 6, 8, 9, 12])
        wide[:, columns], wide_labels[:, columns] = scores, labels.double()
        mask = torch.zeros(6, 13, dtype=torch.bool)
        mask[:, columns] = True
        padded, padded_gradient = value_and_gradient(name, settings, wide, wide_labels, mask)
        torch.testing.assert_close(padded, values, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(padded_gradient[:, columns], gradient, rtol=1e-7, atol=1e-10)
        assert (padded_gradient[~mask] == 0).all()


@EVERY
def test_the_order_of_the_documents_does_not_matter(name: str, settings: dict) -> None:
    scores, labels = random_lists(name)
    order = torch.tensor([3, 0, 7, 1, 5, 2, 6, 4])
    values, gradient = value_and_gradient(name, settings, scores, labels)
    moved, moved_gradient = value_and_gradient(name, settings, scores[:, order], labels[:, order])
    torch.testing.assert_close(moved, values)
    torch.testing.assert_close(moved_gradient, gradient[:, order], rtol=1e-7, atol=1e-9)


@EVERY
def test_lists_do_not_touch_each_other(name: str, settings: dict) -> None:
    scores, labels = random_lists(name)
    scores[1] *= 1000
    values, gradient = value_and_gradient(name, settings, scores, labels)
    for i in range(len(scores)):
        alone, alone_gradient = value_and_gradient(name, settings, scores[i : i + 1], labels[i : i + 1])
        torch.testing.assert_close(alone, values[i : i + 1], rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(alone_gradient, gradient[i : i + 1], rtol=1e-6, atol=1e-9)


@EVERY
def test_a_score_that_is_no_number_shows_in_its_list_only(name: str, settings: dict) -> None:
    scores, labels = random_lists(name)
    expected, expected_gradient = value_and_gradient(name, settings, scores, labels)
    scores[0, 3] = torch.nan
    values, gradient = value_and_gradient(name, settings, scores, labels)
    assert values[0].isnan()
    torch.testing.assert_close(values[1:], expected[1:], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(gradient[1:], expected_gradient[1:], rtol=1e-6, atol=1e-9)


SMALL = [
    ([[0.5] * 6], [[0, 1, 0, 2, 0, 1]]),
    ([[1.0, 1.0, 0.0, 0.0, 0.0, -1.0]], [[0, 1, 0, 2, 0, 1]]),
    ([[0.0] * 6], [[0, 1, 0, 2, 0, 1]]),
    *(([[0.3, -0.7, 1.2, 0.1, -0.4]], [labels]) for labels in ([0, 0, 1, 0, 0], [1] * 5, [3] * 5, [0, 0, 0, 0, 4])),
]
"""Ties, one relevant document, and all of them: scores and labels."""


@EVERY
def test_values_and_gradients_are_finite(name: str, settings: dict) -> None:
    """In float32, for ties, few or many relevant documents, and huge and tiny scores."""
    cases = [(torch.tensor(scores), as_labels(name, torch.tensor(labels))) for scores, labels in SMALL]
    for scale in (1e-30, 1e-4, 1e4):
        scores, labels = random_lists(name, documents=40, dtype=torch.float32)
        scores = scores / scores.abs().max() * scale
        scores[0, :2] = torch.tensor([-scale, scale])
        cases.append((scores, labels % 4))
    if LABELS[name] == "scores":
        scores, labels = random_lists(name, dtype=torch.float32)
        cases += [(scores, labels * 1e-6), (scores, labels * 1e4)]
    for scores, labels in cases:
        values, gradient = value_and_gradient(name, settings, scores, labels)
        assert values.dtype == gradient.dtype == torch.float32
        assert values.isfinite().all()
        assert gradient.isfinite().all()


@EVERY
def test_bf16_is_computed_in_float32_and_autocast_does_not_round(name: str, settings: dict) -> None:
    scores, labels = random_lists(name, dtype=torch.bfloat16)
    values, gradient = value_and_gradient(name, settings, scores, labels)
    expected, expected_gradient = value_and_gradient(name, settings, scores.float(), labels)
    assert values.dtype == torch.float32
    assert gradient.dtype == torch.bfloat16
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(gradient, expected_gradient.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(LOSSES[name](scores.float(), labels, **settings), expected)


@EVERY
def test_lists_that_teach_nothing_are_0_with_a_zero_gradient(name: str, settings: dict) -> None:
    scores = torch.tensor([[0.1, 0.05, 0.3, 0.2]], dtype=torch.float64).repeat(5, 1)
    labels = torch.tensor([[0, 1, 0, 0], [1, 1, 1, 1], [2, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 1]]).bool()
    values, gradient = value_and_gradient(
        name, settings, scores.masked_fill(~mask, torch.nan), as_labels(name, labels), mask
    )
    # A teacher that tells no documents apart teaches ties; to RankNet on its order it gives no pairs.
    ties = LABELS[name] == "scores" and name != "rank_distil"
    assert values.bool().tolist() == gradient.any(dim=1).tolist() == [True, False, False, ties, ties]
    for shape in ((3, 1), (3, 0), (0, 4)):
        values, gradient = value_and_gradient(name, settings, torch.ones(shape), as_labels(name, torch.ones(shape)))
        assert not values.any()
        assert not gradient.any()


@OF_SCORES
def test_only_differences_count_in_the_scores_of_student_and_teacher(name: str, settings: dict) -> None:
    scores, labels = random_lists(name)
    expected, expected_gradient = value_and_gradient(name, settings, scores, labels)
    for student, teacher in ((1000.0, 0.0), (0.0, -1000.0), (-50.0, 300.0)):
        values, gradient = value_and_gradient(name, settings, scores + student, labels + teacher)
        torch.testing.assert_close(values, expected, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-11)
    if name in ("rank_distil", "adr_mse"):  # of the order alone: no scores are the teacher's
        same, _ = value_and_gradient(name, settings, scores, labels.exp())
        torch.testing.assert_close(same, expected, rtol=1e-9, atol=1e-11)
        return
    values, gradient = value_and_gradient(name, settings, labels + 7, labels)
    torch.testing.assert_close(values, torch.zeros_like(values), rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_shapes_that_differ_are_named(name: str) -> None:
    with pytest.raises(ValueError, match=r"\(lists, documents\), got \(2, 3\), \(2, 4\)"):
        LOSSES[name](torch.zeros(2, 3), torch.zeros(2, 4))


@pytest.mark.parametrize("name", sorted({name for name, settings in CASES if "metric" in settings}))
def test_a_bad_metric_names_the_valid_forms(name: str) -> None:
    for metric in ("mrr", "p", "p@0", "ndcg@", "ap@5", "ndcg@-1", "p@1.5"):
        with pytest.raises(ValueError, match="expected p@K, rr@K, ndcg@K, rr, ndcg or ap"):
            LOSSES[name](torch.zeros(2, 3), torch.zeros(2, 3), metric=metric)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("smoothi", {"delta": 0.0}),
        ("lambda_loss", {"weighting": "ndcg_loss1"}),
        ("lambda_loss", {"weighting": "lambda_rank", "metric": "ap"}),
        ("lambda_loss", {"mu": -1.0, "weighting": "ndcg_loss2++"}),
        ("smoothi", {"delta": 0.5}),
        ("smoothi", {"alpha": 0.0}),
        ("smoothi", {"alpha": -1.0}),
        ("smoothi", {"alpha": float("inf")}),
        ("approx", {"alpha": 0.0}),
        ("approx", {"beta": 0.0}),
        ("fastsort", {"beta": -1.0}),
        ("ot", {"beta": 0.0}),
        ("neuralsort", {"temperature": 0.0}),
        ("pirank", {"temperature": 0.0}),
        ("neural_ndcg", {"temperature": -1.0}),
        ("softsort", {"temperature": 0.0}),
        ("fastsort", {"strength": 0.0}),
        ("ot", {"epsilon": 0.0}),
        ("listap", {"bins": 1}),
        ("listap", {"low": 1.0, "high": 1.0}),
        ("distill_kl", {"temperature": 0.0}),
        ("distill_kl", {"temperature": float("inf")}),
    ],
)
def test_hyperparameters_out_of_range(name: str, settings: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        LOSSES[name](torch.zeros(2, 3), torch.ones(2, 3), **settings)
