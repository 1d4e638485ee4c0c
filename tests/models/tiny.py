"""Tiny models and their files, the inputs that tests give them, and what they are compared with."""

import json
from itertools import pairwise

import torch
import torch.nn.functional as F

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


def write_modules(folder, pooling="mean", similarity=None, prompts=None, normalise=False):
    """The files with which sentence-transformers states how an encoder's vectors are made."""
    mode = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}[pooling]
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] if normalise else [])]
    files = {
        "modules.json": [
            {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for place, (path, kind) in enumerate(modules)
        ],
        "config_sentence_transformers.json": {"prompts": prompts or {}, "similarity_fn_name": similarity},
        "sentence_bert_config.json": {"max_seq_length": 24},
        "1_Pooling/config.json": {"word_embedding_dimension": 32, mode: True},
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    if normalise:
        (folder / "2_Normalize").mkdir()
    return folder


def attend_within(query, key, value, cu_seq_q, *others, scale, window_size):
    """What varlen_attn documents."""
    outs = []
    for begin, end in pairwise(cu_seq_q.tolist()):
        grids = (x[begin:end].transpose(0, 1) for x in (query, key, value))
        left, right = (end if side < 0 else side for side in window_size)
        apart = torch.arange(end - begin)[:, None] - torch.arange(end - begin)
        near = (apart <= left) & (-apart <= right)
        outs.append(F.scaled_dot_product_attention(*grids, attn_mask=near, scale=scale).transpose(0, 1))
    return torch.cat(outs)
