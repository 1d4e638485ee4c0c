"""A model tries packed attention on its device; the GPU and its kernel are stand-ins that compute on the CPU."""

import re
from functools import partial

import pytest
import torch
from torch.nn.attention import varlen

from rerank.models import cross_encoder, packed_attention
from tests.models.tiny import attend_within, open_tiny
from tests.support.small_world import make_texts
from tests.support.tiny_decoders import make_decoder
from tests.support.tiny_encoders import make_cross_encoder, make_encoder

CUDA = torch.device("cuda", 0)
TEXTS = make_texts({"short": 3, "one": 20, "two": 60, "many": 200})
AUTOCAST = {
    "float32": partial(torch.autocast, "cpu", enabled=False),
    "bf16": partial(torch.autocast, "cpu", torch.bfloat16),
    "fp16": partial(torch.autocast, "cpu", torch.float16),
}


def attend_to_all(query, key, value, cu_seq_q, *others, scale, window_size):
    """A kernel that does not see where passages end."""
    everything = torch.tensor([0, len(query)])
    return attend_within(query, key, value, everything, scale=scale, window_size=window_size)


def refuse(*arguments, **settings):
    raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.\nAt aten/src")


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Models stay where they are, and `kernel` is called for what FlashAttention takes there."""

    def install(kernel, flash=True):
        calls = []

        def counted(*arguments, **settings):
            calls.append(arguments)
            return kernel(*arguments, **settings)

        monkeypatch.setattr(cross_encoder.CrossEncoder, "to", lambda self, device: self)
        monkeypatch.setattr(cross_encoder, "has_flash_attention", lambda device: flash)
        half = (torch.float16, torch.bfloat16)
        monkeypatch.setattr(packed_attention, "_fits_flash", lambda query, value: value.dtype in half)
        monkeypatch.setattr(varlen, "varlen_attn", counted)
        return calls

    return install


def opened(tmp_path, make=make_encoder, kind="bert"):
    model, _, inputs_of = open_tiny(tmp_path, TEXTS, kind, make, larger=True)
    return model, inputs_of([("q", doc_id) for doc_id in TEXTS])


@pytest.mark.parametrize(
    ("make", "kind", "precision"),
    [
        (make_encoder, "bert", "bf16"), (make_encoder, "modernbert", "fp16"), (make_cross_encoder, "electra", "bf16"),
        (make_decoder, "qwen3", "fp16"),
    ],
)  # fmt: skip
def test_a_kernel_that_is_right_is_used(make, kind, precision, tmp_path, on_a_gpu):
    model, inputs = opened(tmp_path, make, kind)
    calls = on_a_gpu(attend_within)
    assert model.train().place(CUDA, AUTOCAST[precision]) == []
    assert model.training
    assert (model.flash, model.is_padded) == (True, False)
    tried = len(calls)
    with torch.no_grad(), AUTOCAST[precision]():
        model.eval()(inputs)
    assert len(calls) > tried > 0


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (attend_to_all, r"its values differ from float32's by .*; rounding explains"),
        (refuse, r"FlashAttention only supports Ampere GPUs or newer\.$"),
    ],
)
def test_a_kernel_that_is_wrong_is_not_used_and_a_line_says_so(kernel, reason, tmp_path, on_a_gpu):
    model, inputs = opened(tmp_path)
    with torch.no_grad():
        expected = model.eval()(inputs)
    calls = on_a_gpu(kernel)
    (line,) = model.place(CUDA, AUTOCAST["bf16"])
    assert line.startswith("FlashAttention is not used on cuda:0: ")
    assert re.search(reason, line)
    assert (model.flash, model.is_padded) == (False, False)
    tried = len(calls)
    with torch.no_grad(), AUTOCAST["bf16"]():
        scores = model(inputs)
    assert len(calls) == tried
    assert (scores - expected).abs().max() < 0.05 * expected.abs().max()


def test_a_card_before_ampere_never_calls_the_kernel(tmp_path, on_a_gpu):
    model, inputs = opened(tmp_path)
    calls = on_a_gpu(refuse, flash=False)
    assert model.place(CUDA, AUTOCAST["fp16"]) == []
    with torch.no_grad(), AUTOCAST["fp16"]():
        model.eval()(inputs)
    assert (calls, model.flash, model.is_padded) == ([], False, False)


def test_passages_are_padded_where_no_kernel_is_right(tmp_path, on_a_gpu, monkeypatch):
    model, inputs = opened(tmp_path)
    with torch.no_grad():
        expected = model.eval()(inputs)
    on_a_gpu(refuse)
    right = packed_attention._attend_bucket
    monkeypatch.setattr(packed_attention, "_attend_bucket", lambda *arguments: 2 * right(*arguments))
    first, second = model.place(CUDA, AUTOCAST["float32"])
    assert "FlashAttention is not used" in first or "values differ" in first
    assert second == model.padding_reason
    assert second.startswith("packed passages cannot be used on cuda:0: its values differ")
    with torch.no_grad():
        torch.testing.assert_close(model(inputs), expected, atol=1e-5, rtol=1e-4)
    assert model.encoder.config._attn_implementation == "sdpa"  # transformers' own, with dropout of its weights


def test_on_a_cpu_nothing_is_tried(tmp_path, monkeypatch):
    model, _ = opened(tmp_path)
    monkeypatch.setattr(model, "forward", refuse)
    assert model.place(torch.device("cpu"), AUTOCAST["float32"]) == []
