"""LoRA: gradients are those of W + 2 B A, checkpoints have plain weights, and the body's own weights stay."""

import sys

import pytest
import torch
from safetensors.torch import load_file

from rerank.models.checkpoints import (
    ALPHA_PER_RANK,
    merged_weights,
    open_trained_cross_encoder,
    save_cross_encoder,
)
from rerank.utils.errors import UserError
from tests.models.tiny import open_tiny
from tests.support.small_world import make_texts
from tests.support.tiny_decoders import make_decoder
from tests.support.tiny_encoders import make_cross_encoder, make_encoder

TEXTS = make_texts({"short": 3, "one": 20, "two": 60})
PAIRS = [("q", doc_id) for doc_id in TEXTS]
MAKERS = {"qwen3": make_decoder, "bert": make_encoder, "modernbert": make_cross_encoder}


def opened(kind, folder, rank=4, seed=0):
    model, tokenizer, inputs_of = open_tiny(folder, TEXTS, kind, MAKERS[kind], seed=seed, rank=rank, max_positions=200)
    return model.eval(), tokenizer, inputs_of(PAIRS)


def matrices(model):
    return {name: p for name, p in model.named_parameters() if "lora_" in name}


def randomised(model, std=0.05):
    """B is 0 at first, and then A has no gradient."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in matrices(model).values():
            parameter.normal_(std=std, generator=generator)
    return model


@pytest.mark.parametrize("kind", MAKERS)
def test_the_body_is_frozen_and_its_linear_layers_have_low_rank_matrices(kind, tmp_path):
    model, _, inputs = opened(kind, tmp_path)
    plain, _, _ = opened(kind, tmp_path, rank=0)
    body, head = model.parameter_groups(1e-5, 1e-3)
    assert {id(p) for p in body["params"]} == {id(p) for p in matrices(model).values()}
    assert {p.shape for p in head["params"]} == {p.shape for p in plain.parameter_groups(1e-5, 1e-3)[1]["params"]}
    linear = [m for m in plain.encoder.base_model.modules() if isinstance(m, torch.nn.Linear)]
    assert len(body["params"]) == 2 * len(linear)
    assert all(4 in p.shape for p in body["params"])
    with torch.no_grad():
        torch.testing.assert_close(model(inputs), plain(inputs))


@pytest.mark.parametrize("kind", ["qwen3", "bert"])
def test_the_gradient_is_that_of_the_sum_of_weights_and_matrices(kind, tmp_path):
    """With G the gradient of W + 2 B A of a plain model: 2 G Aᵀ for B and 2 Bᵀ G for A."""
    model, _, inputs = opened(kind, tmp_path)
    randomised(model)
    plain, _, _ = opened(kind, tmp_path, rank=0)
    plain.encoder.load_state_dict(merged_weights(model.encoder))
    weights = torch.arange(1.0, len(PAIRS) + 1)
    for each in (model, plain):
        (each.pool(each(inputs), inputs.documents) * weights).sum().backward()
    gradients = {name: p.grad for name, p in plain.named_parameters()}
    compared = 0
    for name, module in model.named_modules():
        if hasattr(module, "lora_A") and len(module.lora_A):
            a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
            gradient = gradients[f"{name}.weight"]
            torch.testing.assert_close(b.grad, ALPHA_PER_RANK * gradient @ a.T, atol=1e-5, rtol=1e-3)
            torch.testing.assert_close(a.grad, ALPHA_PER_RANK * b.T @ gradient, atol=1e-5, rtol=1e-3)
            compared += bool(a.grad.abs().max() > 1e-4)
    assert compared > 5


@pytest.mark.parametrize("kind", MAKERS)
def test_a_checkpoint_has_plain_weights_and_the_same_scores(kind, tmp_path):
    model, _, inputs = opened(kind, tmp_path)
    randomised(model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    save_cross_encoder(model, tmp_path / "saved")
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    names = load_file(tmp_path / "saved" / "model.safetensors").keys()
    assert not [name for name in names if "lora" in name or "base_layer" in name]
    assert not list((tmp_path / "saved").glob("adapter*"))
    again = open_trained_cross_encoder(str(tmp_path / "saved"), "mean", 800).eval()
    plain, _, _ = opened(kind, tmp_path, rank=0)
    with torch.no_grad():
        scores = model(inputs)
        torch.testing.assert_close(again(inputs), scores, atol=1e-5, rtol=1e-5)
        assert not torch.allclose(plain(inputs), scores, atol=1e-4)


def test_the_matrices_follow_from_the_seed(tmp_path):
    torch.manual_seed(5)
    drawn = [matrices(opened("qwen3", tmp_path, seed=seed)[0]) for seed in (0, 0, 1)]
    next_number = torch.rand(1)
    assert all(torch.equal(drawn[0][name], drawn[1][name]) for name in drawn[0])
    assert not all(torch.equal(drawn[0][name], drawn[2][name]) for name in drawn[0])
    assert torch.equal(next_number, torch.rand(1, generator=torch.Generator().manual_seed(5)))


def test_missing_peft_is_one_line_that_says_what_to_install(tmp_path, monkeypatch):
    opened("bert", tmp_path, rank=0)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(
        UserError, match=r'--encoder.lora-rank 4: needs the package peft.*pip install "ir-rerank\[lora\]"'
    ):
        opened("bert", tmp_path)
