"""Where the kernels of a GPU are called; stand-ins compute their results with torch's operations on the CPU."""

import copy
import gc
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from rerank.models.cpu import layers
from rerank.models.dropout import drop_by_operations
from rerank.models.fused import kernel_error, use_kernels, use_operations
from tests.models.tiny import open_tiny
from tests.support.small_world import make_texts
from tests.support.tiny_encoders import make_cross_encoder, make_encoder

TEXTS = make_texts({f"d{i}": length for i, length in enumerate([0, 5, 20, 60, 90])})
GPU = torch.device("cuda")
BF16 = partial(torch.autocast, "cpu", torch.bfloat16)


@pytest.fixture
def calls(monkeypatch):
    """The stand-ins' calls, by name."""
    made = []

    def drop(x, keys, layer_key, p):
        made.append("drop")
        return drop_by_operations(x, keys, layer_key, p)

    def drop_add_norm(x, residual, weight, bias, keys, layer_key, p, epsilon):
        made.append("drop_add_norm")
        total = x.float() if keys is None else drop_by_operations(x.float(), keys, layer_key, p)
        return F.layer_norm(total + residual.float(), weight.shape, weight, bias, epsilon).to(x.dtype)

    drop, join = SimpleNamespace(apply=drop), SimpleNamespace(apply=drop_add_norm, TYPES=(torch.bfloat16,))
    kernels = SimpleNamespace(Drop=drop, DropAddNorm=join)
    monkeypatch.setitem(sys.modules, "rerank.models.triton_kernels", kernels)
    return made


def scores_and_gradient(model, inputs):
    model.zero_grad()
    scores = model(inputs)
    scores.sum().backward()
    return scores.detach(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize(("make", "kind"), [(make_encoder, "bert"), (make_cross_encoder, "electra")])
def test_in_bf16_each_layer_of_bert_ends_with_kernels_and_trains_alike(make, kind, tmp_path, calls):
    model, _, inputs_of = open_tiny(tmp_path, TEXTS, kind, make, larger=True)
    inputs = inputs_of([("q", doc_id) for doc_id in TEXTS]).seeded(torch.arange(len(TEXTS)))
    with BF16():
        expected = scores_and_gradient(model.train(), inputs)
        use_kernels(model, GPU)
        found = scores_and_gradient(model, inputs)
    layers = model.encoder.config.num_hidden_layers
    assert calls.count("drop_add_norm") == 2 * layers
    assert calls.count("drop") >= 1  # of the embeddings
    gc.collect()
    assert not any(hasattr(x, "projected") for x in gc.get_objects() if type(x) is torch.Tensor)
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < 0.05 * other.norm()
    use_operations(model)
    with BF16():
        assert torch.equal(model(inputs), expected[0])
    assert calls.count("drop_add_norm") == 2 * layers


def test_in_float32_norms_are_torchs_own(tmp_path, calls):
    model, _, inputs_of = open_tiny(tmp_path, TEXTS, "bert")
    inputs = inputs_of([("q", doc_id) for doc_id in TEXTS]).seeded(torch.arange(len(TEXTS)))
    expected = model.train()(inputs)
    use_kernels(model, GPU)
    torch.testing.assert_close(model(inputs), expected, atol=1e-6, rtol=1e-5)
    assert set(calls) == {"drop"}


def test_a_module_with_berts_parts_that_computes_something_else_stays_as_it_is():
    class Ending(torch.nn.Module):
        def __init__(self, normalised):
            super().__init__()
            self.dense, self.LayerNorm = torch.nn.Linear(6, 4), torch.nn.LayerNorm(4)
            self.dropout, self.normalised = torch.nn.Dropout(0.1), normalised

        def forward(self, hidden_states, input_tensor):
            if self.normalised:
                return self.LayerNorm(self.dropout(self.dense(hidden_states)) + input_tensor)
            return self.dropout(self.dense(hidden_states)) + self.LayerNorm(input_tensor)

    model = torch.nn.Sequential(Ending(True), Ending(False))
    use_kernels(model, torch.device("cpu"))
    assert [isinstance(one.forward, partial) for one in model] == [True, False]
    assert copy.deepcopy(model)[0].forward.args[0] is not model[0]


def test_an_attention_that_projects_keys_first_is_refused(tmp_path, calls):
    model, _, _ = open_tiny(tmp_path, TEXTS, "bert")
    use_kernels(model, GPU)
    attention = model.encoder.encoder.layer[0].attention.self
    with pytest.raises(RuntimeError, match="projects keys or values before queries"):
        attention.key(torch.ones(1, 3, attention.key.in_features))


def test_a_padded_encoder_has_the_kernel_of_dropout_alone(tmp_path, calls):
    model, _, inputs_of = open_tiny(tmp_path, TEXTS, "deberta-v2")
    inputs = inputs_of([("q", doc_id) for doc_id in TEXTS]).seeded(torch.arange(len(TEXTS)))
    expected = model.train()(inputs)
    use_kernels(model, GPU, layers=False)
    assert torch.equal(model(inputs), expected)
    assert set(calls) == {"drop"}


def test_kernels_that_do_not_run_or_drop_other_values_are_not_used(monkeypatch):
    cpu = torch.device("cpu")
    monkeypatch.setattr("rerank.models.fused.missing_kernel", lambda dtype: "")
    monkeypatch.setattr(layers, "Drop", SimpleNamespace(apply=drop_by_operations))
    assert kernel_error.__wrapped__(cpu) == ""
    monkeypatch.setattr(layers, "Drop", SimpleNamespace(apply=lambda x, *others: x))
    assert kernel_error.__wrapped__(cpu) == "a kernel drops other values than torch's operations"
    monkeypatch.setattr("rerank.models.fused.missing_kernel", lambda dtype: "no cc")
    assert kernel_error.__wrapped__(cpu) == "no cc"
    monkeypatch.setitem(sys.modules, "rerank.models.triton_kernels", None)
    assert "rerank.models.triton_kernels" in kernel_error.__wrapped__(GPU)
