"""Layers by torch.compile: what is traced computes the same, in few graphs; what goes wrong leaves the model as it was.

torch.compile's backend is eager, as the others need a compiler, and FlashAttention a stand-in that can be traced.
"""

import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import varlen

from rerank.batches.batch import make_batch
from rerank.losses import smoothi
from rerank.models import compiled, packed_attention
from rerank.models.compiled import compile_layers
from rerank.models.memory import TokenBudget
from rerank.training.gradients import accumulate_gradient
from tests.models.tiny import open_tiny
from tests.support.small_world import make_lists
from tests.support.tiny_encoders import make_cross_encoder, make_encoder
from tests.training.test_gradients import BF16

QUERIES, TEXTS, LISTS = make_lists(queries=3, documents=6, longest=90)


def attend_traced(queries, keys, values, starts, *others, scale, window_size):
    owners = torch.bucketize(torch.arange(len(queries)), starts[1:], right=True)
    q, k, v = (x.transpose(0, 1)[None] for x in (queries, keys, values))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=owners[:, None] == owners, scale=scale)
    return out[0].transpose(0, 1)


@pytest.fixture
def on_a_gpu(monkeypatch):
    monkeypatch.setattr(compiled, "_applies", lambda model, autocast: True)
    monkeypatch.setattr(packed_attention, "_fits_flash", lambda query, value: value.dtype == torch.bfloat16)
    monkeypatch.setattr(varlen, "varlen_attn", attend_traced)
    plain, calls = nn.Module.compile, []

    def compile_eagerly(self, dynamic, options, **others):
        calls.append(type(self).__name__)
        plain(self, backend="eager", dynamic=dynamic, **others)

    monkeypatch.setattr(nn.Module, "compile", compile_eagerly)
    torch.compiler.reset()
    yield calls
    torch.compiler.reset()


def step(model, lists, inputs_of, tokens):
    torch.manual_seed(3)
    accumulate_gradient(model, make_batch(lists, inputs_of), smoothi, 1.0, BF16, TokenBudget(tokens))
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize(("make", "kind"), [(make_encoder, "bert"), (make_cross_encoder, "electra")])
def test_steps_and_scores_of_any_lengths_are_those_of_the_layers(make, kind, tmp_path, on_a_gpu):
    model, _, inputs_of = open_tiny(tmp_path, TEXTS, kind, make, QUERIES, larger=True, max_positions=48)
    model.train()
    work = [(LISTS, 10**6), (LISTS[:1], 100), (LISTS[1:], 150)]
    expected = [step(model, lists, inputs_of, tokens) for lists, tokens in work]
    with torch.no_grad(), BF16.autocast():
        scores = model.eval()(inputs_of([("q0", doc_id) for doc_id in TEXTS]))
    names = set(model.state_dict())
    assert compile_layers(model, BF16.autocast) == ""
    assert model.compiled
    assert not model.training
    assert len(on_a_gpu) == 2 * model.encoder.config.num_hidden_layers  # all but one, and the embeddings, and a copy's
    for (lists, tokens), gradient in zip(work, expected, strict=True):
        found = step(model.train(), lists, inputs_of, tokens)
        assert (found - gradient).norm() < 0.05 * gradient.norm()
    with torch.no_grad(), BF16.autocast():
        found = model.eval()(inputs_of([("q0", doc_id) for doc_id in TEXTS]))
    torch.testing.assert_close(found, scores, atol=0.02 * float(scores.abs().max()), rtol=0)
    assert set(model.state_dict()) == names


@pytest.mark.parametrize(
    ("planted", "reason"),
    [
        (RuntimeError("Failed to find C compiler.\nSet CC"), "Failed to find C compiler. Set CC"),
        (None, r"their gradient differs by \d"),
    ],
)
def test_a_model_stays_as_it_is_where_compiling_goes_wrong(planted, reason, tmp_path, on_a_gpu, monkeypatch):
    model, _, inputs_of = open_tiny(tmp_path, TEXTS, "bert", queries=QUERIES, larger=True)
    expected = step(model.train(), LISTS, inputs_of, 200)

    def compile_badly(self, **others):
        if planted:
            raise planted
        self.register_forward_hook(lambda module, args, output: 2 * output)

    monkeypatch.setattr(nn.Module, "compile", compile_badly)
    line = compile_layers(model, BF16.autocast)
    assert line.startswith("layers are not compiled on cpu: ")
    assert re.search(reason, line)
    assert not model.compiled
    assert torch.equal(step(model, LISTS, inputs_of, 200), expected)


def test_it_is_of_no_use_on_a_cpu(tmp_path):
    model, _, _ = open_tiny(tmp_path, TEXTS, "bert", queries=QUERIES)
    assert compile_layers(model, partial(torch.autocast, "cpu", torch.bfloat16)) == ""
    assert not model.compiled
