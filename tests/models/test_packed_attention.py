"""Packed and padded passages give the same scores and gradients, encoder by encoder."""

import inspect
import json
from itertools import pairwise, product
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from rerank.models import packed_attention as packing
from rerank.models.checkpoints import save_cross_encoder
from rerank.models.packed_attention import GPU_SHARE, Passages, attend
from tests.models.tiny import assert_same_gradients, attend_within, open_tiny, scores_and_gradients
from tests.support.small_world import make_texts
from tests.support.tiny_encoders import KINDS, make_cross_encoder, make_encoder

PACKED_KINDS = ["bert", "roberta", "electra", "distilbert", "modernbert", "xlm-r"]
TEXTS = make_texts({"empty": 0, "short": 3, "one": 20, "other": 20, "two": 60, "many": 400})
MODELS = [
    *((make_encoder, kind) for kind in PACKED_KINDS),
    (make_cross_encoder, "roberta"),
    (make_cross_encoder, "modernbert"),
]


def opened(make, kind, tmp_path):
    """150 positions: more than ModernBERT's local layers see."""
    model, tokenizer, inputs_of = open_tiny(tmp_path, TEXTS, kind, make, larger=True, max_positions=150)
    return model, tokenizer, inputs_of([("q", doc_id) for doc_id in TEXTS])


@pytest.mark.parametrize(("make", "kind"), MODELS, ids=[f"{make.__name__}-{kind}" for make, kind in MODELS])
def test_packed_and_padded_give_the_same_scores_and_gradients(make, kind, tmp_path):
    model, _, inputs = opened(make, kind, tmp_path)
    assert not model.is_padded
    scores, gradients = scores_and_gradients(model, inputs)
    model.padding_reason = "a test compares"
    padded, padded_gradients = scores_and_gradients(model, inputs)
    assert scores.std() > 5e-3
    torch.testing.assert_close(scores, padded, atol=1e-5, rtol=1e-4)
    assert_same_gradients(padded_gradients, gradients)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in PACKED_KINDS])
def test_an_encoder_whose_attention_is_its_own_is_padded_and_says_why(kind, tmp_path):
    model, _, _ = opened(make_encoder, kind, tmp_path)
    assert model.padding_reason.endswith("cannot be replaced")


def test_an_encoder_without_position_ids_is_padded_and_says_why(tmp_path, monkeypatch):
    from transformers import BertModel

    plain = BertModel.forward

    def forward(self, input_ids=None, attention_mask=None, **others):
        return plain(self, input_ids=input_ids, attention_mask=attention_mask, **others)

    monkeypatch.setattr(BertModel, "forward", forward)
    model, _, _ = opened(make_encoder, "bert", tmp_path)
    assert model.padding_reason == "BertModel takes no position ids"


def test_an_encoder_that_mixes_passages_is_found_out(tmp_path, monkeypatch):
    from transformers.models.bert.modeling_bert import BertIntermediate

    plain = BertIntermediate.forward
    monkeypatch.setattr(BertIntermediate, "forward", lambda self, x: plain(self, x + x.mean(dim=(0, 1))))
    model, _, _ = opened(make_encoder, "bert", tmp_path)
    assert "packing changes the vectors" in model.padding_reason
    assert model.encoder.config._attn_implementation != packing.IMPLEMENTATION


def test_a_checkpoint_knows_nothing_of_packing(tmp_path):
    model, _, _ = opened(make_encoder, "bert", tmp_path)
    save_cross_encoder(model, tmp_path / "saved")
    config = (tmp_path / "saved" / "config.json").read_text()
    assert packing.IMPLEMENTATION not in config
    assert json.loads(config)["hidden_dropout_prob"] == 0.1


@pytest.mark.parametrize("share", [1.0, GPU_SHARE, 0.01])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_attention_stays_within_a_passage_and_its_window(window, causal, share, monkeypatch):
    monkeypatch.setitem(packing.SHARES, "cpu", share)
    lengths = [5, 4, 4, 1]
    query, key, value = torch.randn(3, 1, 2, sum(lengths), 8, generator=torch.Generator().manual_seed(0))
    offsets = torch.tensor([0, 5, 9, 13, 14], dtype=torch.int32)
    module = SimpleNamespace(is_causal=causal)
    passages = Passages(lengths, offsets, max(lengths))
    settings = {"passages": passages, "scaling": 0.3, "sliding_window": window}
    out, _ = attend(module, query, key, value, None, **settings)
    of_first, _ = attend(module, query, key, value, None, first_only=True, **settings)
    torch.testing.assert_close(of_first[0, [0, 5, 9, 13]], out[0, [0, 5, 9, 13]])
    for begin, end in pairwise(offsets.tolist()):
        for i in range(begin, end):
            seen = range(begin, i + 1 if causal else end)
            near = [j for j in seen if window is None or abs(i - j) < window]
            weights = (query[0, :, i, None] * key[0, :, near]).sum(-1).mul(0.3).softmax(-1)
            torch.testing.assert_close(out[0, i], (weights[..., None] * value[0, :, near]).sum(1))


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("first_only", [False, True])
def test_plain_products_in_bf16_give_the_values_and_gradients_of_sdpa(first_only, window, monkeypatch):
    """Passages of one length, and of different lengths with padding; in float64 SDPA computes them."""
    monkeypatch.setitem(packing.SHARES, "cpu", 0.5)
    lengths = [9, 9, 8, 5, 2, 1]
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    passages = Passages(lengths, offsets, max(lengths))
    exact = torch.randn(4, 1, 2, sum(lengths), 8, generator=torch.Generator().manual_seed(0)).bfloat16().double()
    results = []
    for dtype, limit in ((torch.float64, 0), (torch.bfloat16, 0), (torch.bfloat16, max(lengths))):
        monkeypatch.setattr(packing, "LONGEST_BY_PRODUCTS", limit)
        *inputs, factor = (x.to(dtype).requires_grad_() for x in exact)
        settings = {"passages": passages, "first_only": first_only, "sliding_window": window}
        out, _ = attend(SimpleNamespace(is_causal=False), *inputs, None, **settings)
        gradients = torch.autograd.grad((out * factor.transpose(1, 2)).sum(), inputs)
        results.append([x.double() for x in (out, *gradients)])
    for reference, sdpa, products in zip(*results, strict=True):
        error = (products - reference).norm() / reference.norm()
        assert 0 < error < max(0.01, 2 * (sdpa - reference).norm() / reference.norm())


def test_a_layer_of_a_gpu_calls_sdpa_a_few_times(monkeypatch):
    """The lengths are those of a step: 60 passages of 40 to 512 tokens, the longest first."""
    generator = torch.Generator().manual_seed(0)
    lengths = sorted(torch.randint(40, 513, (60,), generator=generator).tolist(), reverse=True)
    offsets = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    query, key, value = torch.randn(3, 1, 1, sum(lengths), 4, generator=generator)
    calls = []
    plain = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *x, **y: calls.append(x) or plain(*x, **y))
    outs = []
    for share, most in ((1.0, 60), (GPU_SHARE, 10)):
        monkeypatch.setitem(packing.SHARES, "cpu", share)
        calls.clear()
        module = SimpleNamespace(is_causal=False)
        outs.append(attend(module, query, key, value, None, passages=Passages(lengths, offsets, max(lengths)))[0])
        assert len(calls) <= most
    torch.testing.assert_close(*outs)
    padded = sum(x[0].shape[0] * x[0].shape[2] for x in calls)
    assert padded < 1.2 * sum(lengths)


@pytest.mark.parametrize("keyword", packing.UNSUPPORTED)
def test_attention_that_no_kernel_computes_is_refused(keyword):
    with pytest.raises(packing.UnsupportedAttentionError, match=f"its attention takes {keyword}"):
        attend(None, *torch.zeros(3, 1, 2, 4, 8), None, **{keyword: torch.ones(1)})


def test_half_precision_on_a_gpu_is_one_call_of_varlen_attention(monkeypatch):
    """The kernel needs a GPU: a stand-in with its signature computes what it documents."""
    from torch.nn.attention import varlen

    signature = inspect.signature(varlen.varlen_attn)

    def stand_in(*args, **kwargs):
        given = signature.bind(*args, **kwargs).arguments
        assert given["max_q"] == given["max_k"] == 5
        assert given["cu_seq_q"].dtype == torch.int32
        assert given["query"].dtype == given["key"].dtype == given["value"].dtype
        return attend_within(*args, **kwargs)

    monkeypatch.setattr(varlen, "varlen_attn", stand_in)
    lengths = [5, 4, 4, 1]
    grids = torch.randn(3, 1, 2, sum(lengths), 8, generator=torch.Generator().manual_seed(0))
    passages = Passages(lengths, torch.tensor([0, 5, 9, 13, 14], dtype=torch.int32), 5)
    for window, causal in product((None, 3), (False, True)):
        module = SimpleNamespace(is_causal=causal)
        expected, _ = attend(module, *grids, None, passages=passages, scaling=0.3, sliding_window=window)
        before = -1 if window is None else window - 1
        query, key, value = (x[0].transpose(0, 1) for x in grids)
        for given in (value, value.bfloat16()):  # with rotary positions queries and keys stay float32
            out = packing._attend_any_lengths(query, key, given, passages, 0.3, (before, 0 if causal else before))
            assert out.dtype == given.dtype
            torch.testing.assert_close(out[None].float(), expected, atol=1e-5 if given is value else 0.05, rtol=0)
