"""Dropout that follows from a passage's seed: how much falls out, and that nothing else decides."""

import pytest
import torch
from torch import nn

from rerank.models.dropout import SeededDropout, seed_dropout, token_keys
from tests.models.tiny import open_tiny
from tests.support.small_world import make_texts

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
