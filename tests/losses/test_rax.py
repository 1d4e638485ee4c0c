"""Against google/rax, where it is installed."""

from functools import partial

import pytest
import torch

from rerank.losses import LOSSES, exact

rax = pytest.importorskip("rax")
jnp = pytest.importorskip("jax.numpy")


def pair_mean(loss, scores, labels):
    return loss(scores, labels, reduce_fn=jnp.sum) / (labels[:, None] > labels[None, :]).sum()


def ndcg_lambda_loss(scores, labels):
    weights = partial(rax.dcg2_lambdaweight, normalize=True)
    return rax.pairwise_logistic_loss(scores, labels, lambdaweight_fn=weights, reduce_fn=jnp.sum)


THEIRS = {
    "hinge": lambda s, y: pair_mean(rax.pairwise_hinge_loss, s, y),
    "ranknet": lambda s, y: pair_mean(rax.pairwise_logistic_loss, s, y),
    "softmax": lambda s, y: rax.softmax_loss(s, y) / y.sum(),
    "listmle": rax.listmle_loss,
    "lambda_loss": ndcg_lambda_loss,
    "ndcg": rax.ndcg_metric,
}


@pytest.mark.parametrize("name", THEIRS)
def test_values_are_those_of_rax(name: str) -> None:
    scores = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[2, 0, 1, 0, 0, 0], [0, 1, 0, 3, 0, 1], [1, 0, 0, 2, 0, 0]]).float()
    ours = exact(scores, labels) if name == "ndcg" else LOSSES[name](scores, labels)
    for value, s, y in zip(ours.tolist(), scores.numpy(), labels.numpy(), strict=True):
        assert value == pytest.approx(float(THEIRS[name](jnp.array(s), jnp.array(y))), rel=1e-5)
