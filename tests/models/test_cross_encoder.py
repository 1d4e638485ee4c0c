"""The cross-encoder, with every kind of encoder: scores, pooling, heads, checkpoints."""

import pytest
import torch

from tests.models.tiny import open_tiny
from tests.support.small_world import make_texts, scores_of
from tests.support.tiny_encoders import KINDS, make_cross_encoder, make_encoder

QUERIES = {"p": "amber birch", "q": "cedar"}
TEXTS = make_texts({"empty": 0, "short": 3, "one": 20, "two": 60, "many": 200})


def opened(tmp_path, kind="bert", make=make_encoder, seed=0, texts=TEXTS, **settings):
    model, _, inputs_of = open_tiny(tmp_path, texts, kind, make, QUERIES, seed, **settings)
    return model.eval(), inputs_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_does_not_depend_on_the_rest_of_the_batch(kind, tmp_path):
    """Whatever the pooling, and with padding."""
    model, inputs_of = opened(tmp_path, kind, max_positions=48)
    pairs = [(query_id, doc_id) for query_id in QUERIES for doc_id in TEXTS]
    with torch.no_grad():
        for model.pooling in ("first", "max", "sum", "softmax", "mean"):
            together = scores_of(model, inputs_of(pairs))
            alone = torch.cat([scores_of(model, inputs_of([pair])) for pair in pairs])
            torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
        torch.testing.assert_close(together, scores_of(model, inputs_of(pairs[::-1])).flip(0), atol=1e-5, rtol=0)
        model.padding_reason = "padded, to compare"
        torch.testing.assert_close(together, scores_of(model, inputs_of(pairs)), atol=1e-5, rtol=0)
    assert (together.dtype, together.shape) == (torch.float32, (len(pairs),))
    assert together.std() > 1e-4


def test_mean_pooling_is_the_dense_layer_on_the_mean_of_cls_vectors(tmp_path):
    """MacAvaney et al. 2019: the passages' [CLS] vectors are averaged before the dense layer."""
    model, inputs_of = opened(tmp_path, max_positions=48)
    packed = inputs_of([("p", "many")])
    with torch.no_grad():
        vectors = [
            model.encoder(
                input_ids=packed.input_ids[None, begin:end], token_type_ids=packed.token_types[None, begin:end]
            ).last_hidden_state[0, 0]
            for begin, end in zip(packed.offsets[:-1], packed.offsets[1:], strict=True)
        ]
        assert len(vectors) > 3
        torch.testing.assert_close(
            scores_of(model, packed)[0], model.head(torch.stack(vectors).mean(0))[0], atol=1e-6, rtol=0
        )


@pytest.mark.parametrize("own_head", [False, True])
def test_the_layers_on_top_have_their_own_learning_rate(own_head, tmp_path):
    model, _ = opened(tmp_path, make=make_cross_encoder if own_head else make_encoder)
    body, top = model.parameter_groups(2e-5, 1e-3)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert {names[id(p)] for p in top["params"]} == (
        {"encoder.classifier.weight", "encoder.classifier.bias"} if own_head else {"head.weight", "head.bias"}
    )
    assert len(body["params"]) + len(top["params"]) == len(names)
    assert (body["lr"], top["lr"]) == (2e-5, 1e-3)


def test_the_seed_decides_the_new_layer(tmp_path):
    weights = [opened(tmp_path, seed=seed)[0].head.weight for seed in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_scores_are_float32_under_bf16_autocast(tmp_path):
    texts = make_texts({f"d{i}": 10 for i in range(150)}, seed=3)
    for make in (make_encoder, make_cross_encoder):
        model, inputs_of = opened(tmp_path / make.__name__, make=make, texts=texts)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            scores = scores_of(model, inputs_of([("p", doc_id) for doc_id in texts]))
        assert scores.dtype == torch.float32
        assert len(set(scores.tolist())) > 140
