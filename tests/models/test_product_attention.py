"""Attention by matrix products against torch's, in float64, in bf16, and in blocks of heads."""

import pytest
import torch
import torch.nn.functional as F

from rerank.models import product_attention
from rerank.models.encoder_inputs import Passages
from rerank.models.packed_attention import attend
from rerank.models.product_attention import attend_by_products

HEADS, SIZE = 5, 8


def made(passages, tokens, dtype):
    """Queries, keys and values as linear layers leave them: token by token."""
    torch.manual_seed(tokens)
    three = torch.randn(3, passages, tokens, HEADS, SIZE).to(dtype).transpose(2, 3).unbind()
    return [x.detach().requires_grad_() for x in three]


@pytest.fixture(params=[2**21, 200])
def blocks(request, monkeypatch):
    """All heads at once, and two heads of ten tokens at a time, so that the last block has one."""
    monkeypatch.setattr(product_attention, "LARGEST", request.param)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("scaling", [None, 0.7])
def test_values_and_gradients_are_those_of_softmax(scaling):
    inputs = made(2, 10, torch.float64)
    expected = F.scaled_dot_product_attention(*inputs, scale=scaling)
    torch.testing.assert_close(attend_by_products(*inputs, scaling), expected, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda *three: attend_by_products(*three, scaling), inputs)


@pytest.mark.parametrize(("passages", "tokens"), [(1, 300), (3, 64), (2, 1)])
def test_bf16_differs_from_float32_by_rounding(passages, tokens):
    inputs = made(passages, tokens, torch.bfloat16)
    exact = [x.detach().float().requires_grad_() for x in inputs]
    found, expected = attend_by_products(*inputs, None), F.scaled_dot_product_attention(*exact)
    direction = torch.randn_like(expected)
    rounded = [found.detach(), *torch.autograd.grad(found, inputs, direction.bfloat16())]
    whole = [expected.detach(), *torch.autograd.grad(expected, exact, direction)]
    for one, other in zip(rounded, whole, strict=True):
        assert float((one.float() - other).norm()) <= 0.01 * max(float(other.norm()), 1e-3)


def test_packed_passages_in_bf16_take_it_unless_they_are_too_long(monkeypatch):
    lengths, calls = [9, 4, 4], []
    inputs = [x.detach() for x in made(1, 17, torch.bfloat16)]
    passages = Passages(lengths, torch.tensor([0, 9, 13, 17], dtype=torch.int32))

    def counted(*arguments):
        calls.append(len(arguments[0]))
        return attend_by_products(*arguments)

    monkeypatch.setattr("rerank.models.packed_attention.attend_by_products", counted)
    found, _ = attend(torch.nn.Module(), *inputs, None, passages=passages)
    assert calls == [1, 2]  # passages of equal length share a call
    exact, _ = attend(torch.nn.Module(), *(x.float() for x in inputs), None, passages=passages)
    torch.testing.assert_close(found.float(), exact, rtol=0.02, atol=0.02)
    monkeypatch.setattr(product_attention, "LARGEST", 80)  # 9 tokens need 81 weights
    attend(torch.nn.Module(), *inputs, None, passages=passages)
    assert calls == [1, 2, 2]
