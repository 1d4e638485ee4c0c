"""Operations, against what torch counts when it does them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel

from rerank.models.checkpoints import open_cross_encoder
from rerank.utils.errors import UserError
from scripts.benchmarks.flops import FORWARDS_OF_A_STEP, forward_flops, token_layers
from scripts.benchmarks.timing import layer_products
from tests.support.small_world import WORDS, make_inputs
from tests.support.tiny_encoders import make_encoder

LENGTHS = np.array([5, 48, 17])


def opened(kind, tmp_path, **settings):
    folder = make_encoder(kind, tmp_path, WORDS)
    return AutoModel.from_pretrained(folder, attn_implementation="eager", **settings)  # so that every product is seen


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "modernbert"])
def test_a_forward_and_a_backward_pass_are_what_torch_counts(kind, tmp_path):
    encoder = opened(kind, tmp_path, **({"add_pooling_layer": False} if kind in ("bert", "roberta") else {}))
    with FlopCounterMode(display=False) as forward, torch.no_grad():
        for length in LENGTHS:
            encoder(input_ids=torch.ones(1, int(length), dtype=torch.long))
    expected = forward_flops(encoder, LENGTHS)
    assert forward.get_total_flops() == pytest.approx(expected, rel=1e-6)
    with FlopCounterMode(display=False) as both:
        for length in LENGTHS:
            encoder(input_ids=torch.ones(1, int(length), dtype=torch.long)).last_hidden_state.sum().backward()
    assert both.get_total_flops() == pytest.approx(FORWARDS_OF_A_STEP * expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "modernbert"])
def test_what_packed_passages_save_in_the_last_layer_is_not_counted(kind, tmp_path):
    folder = make_encoder(kind, tmp_path / kind, WORDS)
    model, tokenizer, max_length = open_cross_encoder(str(folder), "mean", 0)
    texts = {"d": "amber birch", "e": " ".join(WORDS)}
    builder = make_inputs(tmp_path / "tokens", tokenizer, max_length, {"q": "cedar"}, texts)
    inputs = builder([("q", "d"), ("q", "e")])
    lengths = np.array(inputs.lengths())
    layers = {id(layer) for layer in token_layers(model.encoder)}
    names = {f"CrossEncoder.{name}" for name, module in model.named_modules() if id(module) in layers}
    with FlopCounterMode(display=False) as counted, torch.no_grad():
        model.eval()(inputs)
    done = sum(sum(counted.get_flop_counts()[name].values()) for name in names)
    attention = (
        forward_flops(model.encoder, lengths)
        - 2 * sum(layer.weight.numel() for layer in token_layers(model.encoder)) * lengths.sum()
    )
    assert done + attention == forward_flops(model.encoder, lengths, packed=True)
    assert (done + attention < forward_flops(model.encoder, lengths)) == (kind == "bert")


def test_padding_is_not_useful(tmp_path):
    encoder = opened("bert", tmp_path)
    assert forward_flops(encoder, np.array([10, 10])) == 2 * forward_flops(encoder, np.array([10]))
    assert forward_flops(encoder, np.array([20])) > forward_flops(encoder, np.array([10, 10]))


def test_the_layers_products_are_all_of_a_forward_but_attention(tmp_path):
    encoder = opened("bert", tmp_path)
    assert len(token_layers(encoder)) == 2 * 6  # query, key, value, output, up, down
    _, work, flops = layer_products(encoder, torch.device("cpu"), torch.float32)
    with FlopCounterMode(display=False) as counted:
        work()
    assert counted.get_total_flops() == flops


def test_an_encoder_without_a_list_of_layers_is_a_clear_line(tmp_path):
    encoder = opened("bert", tmp_path)
    encoder.encoder.layer = nn.Sequential(*encoder.encoder.layer)
    with pytest.raises(UserError, match="BertModel: no list of 2 layers"):
        token_layers(encoder)
