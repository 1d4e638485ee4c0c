"""Tiny models with the inputs that tests give them, and whether two ways to compute their gradients agree."""

import torch

from rerank.models.checkpoints import open_cross_encoder
from tests.support.small_world import WORDS, make_inputs
from tests.support.tiny_encoders import make_encoder

BF16_CASES = [
    ("bf16", {}, "bf16"),
    ("auto", {"SMALL": 0}, "bf16"),
    ("auto", {}, "float32"),  # a small model
    ("auto", {"SMALL": 0, "FARTHEST": 1e-6}, "float32"),  # a model whose values differ
]
"""A precision that is asked for on a CPU that gains by bf16, limits of the module that chooses, and the choice."""

ONE_QUERY = {"q": "amber birch"}


def open_tiny(
    folder, texts, kind="bert", make=make_encoder, queries=ONE_QUERY, seed=0, rank=0, larger=False, **settings
):
    """A model that `make` writes once, its tokenizer, and the builder of its inputs.

    `larger` weights than fresh ones, which are so small that attention hardly matters.
    """
    if not (folder / kind).exists():
        make(kind, folder / kind, WORDS, **settings)
    model = open_cross_encoder(str(folder / kind), "mean", seed, lora_rank=rank)
    if larger:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(5 if parameter.dim() > 1 else 1)
    return model, model.tokenizer, make_inputs(folder / "tokens", model.tokenizer, model.max_length, queries, texts)


def scores_and_gradients(model, inputs):
    """The scores of passages, and the gradients of the parameters by name of a sum in which each counts differently."""
    model.zero_grad()
    scores = model(inputs)
    (scores * torch.arange(1, len(scores) + 1)).sum().backward()
    return scores.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same_gradients(found, expected, tolerance=1e-4):
    """No number differs by more than a part of the largest one."""
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=tolerance * largest, rtol=0)
