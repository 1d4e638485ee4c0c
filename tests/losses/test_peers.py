"""Against public implementations: scipy's isotonic regression, google/rax, POT and sentence-transformers."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import isotonic_regression

from rerank.losses import LOSSES, exact_metric, fast_soft_ranks, soft_permutation


def pair_mean(rax, jnp, loss, scores, labels):
    return loss(scores, labels, reduce_fn=jnp.sum) / (labels[:, None] > labels[None, :]).sum()


def ndcg_lambda_loss(rax, jnp, scores, labels):
    weights = partial(rax.dcg2_lambdaweight, normalize=True)
    return rax.pairwise_logistic_loss(scores, labels, lambdaweight_fn=weights, reduce_fn=jnp.sum)


def approx_ndcg(rax, jnp, scores, labels):
    import jax

    # What rax.approx_t12n does, which rax 0.4 cannot do with a jax of 2026.
    return 1 - rax.ndcg_metric(scores, labels, rank_fn=partial(rax.utils.approx_ranks, step_fn=jax.nn.sigmoid))


THEIRS = {
    "approx": approx_ndcg,
    "hinge": lambda rax, jnp, s, y: pair_mean(rax, jnp, rax.pairwise_hinge_loss, s, y),
    "lambda_loss": ndcg_lambda_loss,
    "listmle": lambda rax, jnp, s, y: rax.listmle_loss(s, y),
    "ndcg": lambda rax, jnp, s, y: rax.ndcg_metric(s, y),
    "pairwise_softmax": lambda rax, jnp, s, y: pair_mean(rax, jnp, rax.pairwise_soft_zero_one_loss, s, y),
    "ranknet": lambda rax, jnp, s, y: pair_mean(rax, jnp, rax.pairwise_logistic_loss, s, y),
    "softmax": lambda rax, jnp, s, y: rax.softmax_loss(s, y) / y.sum(),
}


def random_scores(documents: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(3, documents, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("name", THEIRS)
def test_values_are_those_of_rax(name: str) -> None:
    import jax.numpy as jnp
    import rax

    scores = random_scores(6, torch.float32)
    labels = torch.tensor([[2, 0, 1, 0, 0, 0], [0, 1, 0, 3, 0, 1], [1, 0, 0, 2, 0, 0]]).float()
    ours = exact_metric(scores, labels) if name == "ndcg" else LOSSES[name](scores, labels)
    for value, s, y in zip(ours.tolist(), scores.numpy(), labels.numpy(), strict=True):
        assert value == pytest.approx(float(THEIRS[name](rax, jnp, jnp.array(s), jnp.array(y))), rel=1e-5)


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


@pytest.mark.parametrize("strength", [0.01, 0.1, 1.0, 10.0])
def test_the_l2_projection_is_that_of_scipys_isotonic_regression(strength: float) -> None:
    scores = random_scores(50)
    for places, row in zip(fast_soft_ranks(scores, None, "l2", strength).numpy(), scores.numpy(), strict=True):
        order = np.argsort(row)
        z = -row[order] / strength
        np.testing.assert_allclose(
            places[order], z - isotonic_regression(z - np.arange(50, 0, -1), increasing=False).x, atol=1e-9
        )


class Features(torch.nn.Module):
    """Stands in for a SentenceTransformer: the embeddings are the features."""

    def forward(self, features):
        return {"sentence_embedding": features["scores"]}


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
