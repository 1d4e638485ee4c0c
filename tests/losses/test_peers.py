"""Against public implementations: scipy's isotonic regression, google/rax, POT and sentence-transformers."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import isotonic_regression

from rerank.losses import LOSSES, exact_metric, fast_soft_ranks, soft_permutation

RAX = {
    "approx": [0.5092351, 0.4905134, 0.5516598],  # 1 - ndcg_metric(rank_fn=partial(approx_ranks, step_fn=sigmoid))
    "hinge": [1.3488653, 0.925572, 2.0552471],  # pairwise_hinge_loss, and so on, over the number of pairs
    "lambda_loss": [6.4297495, 4.8924131, 7.3127613],  # pairwise_logistic_loss, dcg2_lambdaweight(normalize=True)
    "listmle": [7.7275171, 6.32516, 8.304884],
    "ndcg": [0.4935457, 0.5552546, 0.4680761],
    "pairwise_softmax": [0.5307268, 0.439935, 0.6911794],  # pairwise_soft_zero_one_loss
    "ranknet": [0.9764593, 0.6957678, 1.4840431],  # pairwise_logistic_loss
    "softmax": [2.4555321, 2.1368699, 2.9877806],  # softmax_loss over the sum of the labels
}
"""The values of google/rax 0.4.0 for the three lists of `test_values_are_those_of_rax`."""


def random_scores(documents: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(3, documents, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("name", RAX)
def test_values_are_those_of_rax(name: str) -> None:
    scores = random_scores(6, torch.float32)
    labels = torch.tensor([[2, 0, 1, 0, 0, 0], [0, 1, 0, 3, 0, 1], [1, 0, 0, 2, 0, 0]]).float()
    ours = exact_metric(scores, labels) if name == "ndcg" else LOSSES[name](scores, labels)
    assert ours.tolist() == pytest.approx(RAX[name], rel=1e-5)


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.02])
def test_the_transport_plan_is_that_of_pot(epsilon: float) -> None:
    import ot as pot

    scores, uniform = random_scores(7), np.full(7, 1 / 7)
    centred = scores - scores.mean(dim=1, keepdim=True)
    x = torch.sigmoid(centred / centred.square().mean(dim=1, keepdim=True).sqrt() * math.pi / math.sqrt(3))
    for plan, row in zip(soft_permutation(scores, None, epsilon), x.numpy(), strict=True):
        cost = (np.linspace(1, 0, 7)[:, None] - row) ** 2
        theirs = pot.sinkhorn(uniform, uniform, cost, epsilon, method="sinkhorn_log", stopThr=1e-14, numItermax=20_000)
        np.testing.assert_allclose(plan.numpy(), 7 * theirs, atol=1e-10)


def test_the_l2_projection_is_that_of_scipys_isotonic_regression() -> None:
    scores = random_scores(50)
    for strength in (0.01, 0.1, 1.0, 10.0):
        for places, row in zip(fast_soft_ranks(scores, None, strength).numpy(), scores.numpy(), strict=True):
            order = np.argsort(row)
            z = -row[order] / strength
            theirs = z - isotonic_regression(z - np.arange(50, 0, -1), increasing=False).x
            np.testing.assert_allclose(places[order], theirs, atol=1e-9)


class Features(torch.nn.Module):
    """Stands in for a SentenceTransformer: the embeddings are the features."""

    def forward(self, features):
        return {"sentence_embedding": features["scores"]}


class Scorer(torch.nn.Module):
    """Stands in for a CrossEncoder: the text of a document is its score."""

    num_labels, device = 1, torch.device("cpu")

    def preprocess(self, pairs, **_):
        return {"scores": torch.tensor([float(document) for _, document in pairs])}

    def forward(self, tokens):
        return tokens


@pytest.mark.parametrize("metric", ["ndcg", "ndcg@3"])
@pytest.mark.parametrize(
    ("weighting", "scheme"),
    [("ndcg_loss2", "NDCGLoss2"), ("lambda_rank", "LambdaRank"), ("ndcg_loss2++", "NDCGLoss2PP")],
)
def test_lambda_loss_is_that_of_sentence_transformers(metric, weighting, scheme) -> None:
    """Theirs is a mean over the pairs of a batch, in log2; ours is a sum times the number of documents."""
    from sentence_transformers.cross_encoder import losses

    cutoff = int(metric.partition("@")[2] or 8)
    theirs = losses.LambdaLoss(Scorer(), weighting_scheme=getattr(losses, f"{scheme}Scheme")(), k=cutoff)
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        scores, labels = torch.randn(8, generator=generator), torch.randint(0, 3, (8,), generator=generator).float()
        values = LOSSES["lambda_loss"](scores[None], labels[None], metric=metric, weighting=weighting)
        ordered = labels[scores.argsort(descending=True)]
        pairs = sum(ordered[i] != ordered[j] for i in range(min(cutoff, 8)) for j in range(i + 1, 8))
        expected = theirs([["q"], [[repr(score) for score in scores.tolist()]]], [labels])
        torch.testing.assert_close(values[0] / (8 * pairs * math.log(2)), expected, rtol=1e-4, atol=1e-6)


def columns(scores: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    """A query with the embedding (1,), and documents whose embeddings are their scores."""
    documents = [{"scores": column[:, None]} for column in scores.unbind(dim=1)]
    return [{"scores": torch.ones(len(scores), 1, dtype=scores.dtype)}, *documents]


def test_margin_mse_of_two_documents_is_that_of_sentence_transformers() -> None:
    from sentence_transformers.sentence_transformer.losses import MarginMSELoss

    scores, labels = random_scores(2), random_scores(4)[:, 1:3] * 3 - 1
    theirs = MarginMSELoss(Features())(columns(scores), labels)
    torch.testing.assert_close(LOSSES["margin_mse"](scores, labels).mean(), theirs, check_dtype=False)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_divergence_is_that_of_sentence_transformers(temperature: float) -> None:
    from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss

    scores, labels = random_scores(6), random_scores(12)[:, 6:] * 3 - 1
    theirs = DistillKLDivLoss(Features(), temperature=temperature)(columns(scores), labels)
    ours = LOSSES["distill_kl"](scores, labels, temperature=temperature).mean()
    torch.testing.assert_close(ours, theirs, check_dtype=False, rtol=1e-5, atol=1e-7)
