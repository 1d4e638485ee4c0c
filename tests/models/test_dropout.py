"""Dropout that follows from a passage's seed: how much falls out, and that nothing else decides."""

import pytest
import torch
from torch import nn

from rerank.models.dropout import SeededDropout, seed_dropout, token_keys
from rerank.utils.errors import UserError
from tests.models.tiny import open_tiny
from tests.support.small_world import make_texts
from tests.support.tiny_encoders import make_cross_encoder, make_encoder

TEXTS = make_texts({f"d{i}": length for i, length in enumerate([0, 5, 20, 20, 60, 90])})


def keys_of(passages, length):
    positions = torch.arange(length).expand(passages, -1)
    return token_keys(torch.arange(passages)[:, None].expand_as(positions), positions)


def dropped(p, number, tokens, width):
    layer = seed_dropout(nn.Sequential(nn.Dropout(p)))
    model = nn.Sequential(SeededDropout(p, number, layer))
    layer.tokens, layer.firsts = tokens, tokens[:, 0]
    return model(torch.ones(*tokens.shape, width))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_a_share_of_p_falls_out_and_the_rest_is_scaled_up(p):
    out = dropped(p, 1, keys_of(40, 100), 64)
    assert out.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)])
    falls = (out == 0).float()
    spread = (p * (1 - p)) ** 0.5
    assert falls.mean().item() == pytest.approx(p, abs=5 * spread / falls.numel() ** 0.5)
    assert falls.mean(dim=(0, 1)).sub(p).abs().max() < 5 * spread / 4000**0.5  # no column
    assert falls.mean(dim=2).sub(p).abs().max() < 6 * spread / 64**0.5  # and no token falls more often


def test_tokens_columns_and_layers_fall_independently():
    one, other = (dropped(0.5, number, keys_of(40, 100), 64).flatten(0, 1) for number in (1, 2))
    for pair in ((one.flatten(), other.flatten()), (one[1:].flatten(), one[:-1].flatten()), (one[:, 1:], one[:, :-1])):
        together = torch.corrcoef(torch.stack([x.flatten() for x in pair]))[0, 1]
        assert abs(together) < 5 / pair[0].numel() ** 0.5
    rows = torch.corrcoef(one[:500]) - torch.eye(500)
    assert rows.abs().max() < 6 / 64**0.5


def test_the_gradient_falls_with_the_value():
    keys = seed_dropout(nn.Sequential(nn.Dropout(0.3)))
    keys.tokens, keys.firsts = keys_of(2, 5), keys_of(2, 5)[:, 0]
    layer = SeededDropout(0.3, 1, keys)
    x = torch.full((2, 5, 8), 3.0, requires_grad=True)
    out = layer(x)
    out.sum().backward()
    assert torch.equal(out, x.detach() * x.grad)
    assert torch.equal(layer.eval()(x), x)


def test_it_refuses_to_train_without_seeds():
    model = nn.Sequential(nn.Dropout(0.3))
    seed_dropout(model)
    with pytest.raises(ValueError, match="needs the seeds"):
        model(torch.ones(2, 3))


@pytest.mark.parametrize("kind", ["bert", "deberta-v2", "modernbert"])
def test_a_passage_drops_the_same_whatever_shares_its_forward_pass(kind, tmp_path):
    model, _, inputs_of = open_tiny(tmp_path, TEXTS, kind, max_positions=48)
    model.train()
    for module in model.modules():
        if isinstance(module, SeededDropout):
            module.p = 0.1  # ModernBERT has none of its own
        if hasattr(module, "pos_dropout"):
            module.pos_dropout.p = 0.0  # of relative positions, which belong to no passage
    inputs = inputs_of([("q", doc_id) for doc_id in TEXTS]).seeded(torch.arange(6) + 2**40)
    together = model(inputs)
    alone = torch.cat([model(inputs.take([passage])) for passage in range(len(inputs.documents))])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
    reseeded = model(inputs_of([("q", doc_id) for doc_id in TEXTS]).seeded(torch.arange(6) + 2**41))
    assert (together - reseeded).abs().max() > 1e-3
    model.eval()
    assert (together - model(inputs)).abs().max() > 1e-3


def with_head_dropout(tmp_path, rate, make=make_encoder):
    model, _, inputs_of = open_tiny(tmp_path / make.__name__, TEXTS, make=make)
    model.drop_out(rate)
    return model.train(), inputs_of([("q", doc_id) for doc_id in TEXTS]).seeded(torch.arange(len(TEXTS)) + 2**40)


def test_the_vector_before_the_head_loses_a_share_of_its_values(tmp_path):
    model, inputs = with_head_dropout(tmp_path, 0.5)
    seen = []
    model.head.register_forward_hook(lambda module, arguments, output: seen.append(arguments[0]))
    model(inputs)
    (vectors,) = seen
    assert vectors.shape == (len(TEXTS), 32)
    assert 0.3 < (vectors == 0).float().mean() < 0.7
    assert len({tuple(row) for row in (vectors == 0).tolist()}) == len(TEXTS)  # each passage has a mask of its own
    alone = inputs.take([2])
    model(alone)
    assert torch.equal(seen[1] == 0, vectors[2:3] == 0)
    model.eval()(inputs)
    assert not (seen[2] == 0).any()


def test_without_a_rate_the_scores_are_those_without_the_layer(tmp_path):
    model, inputs = with_head_dropout(tmp_path, 0.0)
    scores = model(inputs)
    model.head_dropout = torch.nn.Identity()
    assert torch.equal(model(inputs), scores)
    other, _ = with_head_dropout(tmp_path, 0.1)
    assert not torch.equal(other(inputs), scores)


def test_a_head_of_the_models_own_takes_no_dropout_of_ours(tmp_path):
    with pytest.raises(UserError, match=r"--encoder.head-dropout 0.1: this model has a head of its own, with its own"):
        with_head_dropout(tmp_path, 0.1, make_cross_encoder)
    with_head_dropout(tmp_path, 0.0, make_cross_encoder)
