"""Products by oneDNN against those of torch: values, gradients, and which layers of which models take them."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from rerank.models import products
from rerank.models.products import onednn_gain, take_faster_products


@pytest.fixture
def gain(monkeypatch):
    """Sets how much faster oneDNN is; models of any size count."""
    monkeypatch.setattr(products, "SMALL", 0)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return lambda value: monkeypatch.setattr(products, "onednn_gain", lambda: value)


def is_faster(layer):
    return isinstance(layer.forward, partial)


@pytest.mark.parametrize("shape", [(7, 12), (2, 3, 12), (1, 1, 12)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_in_float64(shape, bias, gain):
    gain(2.0)
    torch.manual_seed(0)
    layer, x = nn.Linear(12, 5, bias=bias), torch.randn(*shape[:-1], 24)[..., ::2].requires_grad_()
    exact, exact_x = copy.deepcopy(layer).double(), x.detach().double().requires_grad_()
    take_faster_products(layer)
    assert is_faster(layer)
    found, expected = layer(x), exact(exact_x)
    direction = torch.randn_like(found)
    ours = torch.autograd.grad(found, [x, *layer.parameters()], direction)
    theirs = torch.autograd.grad(expected, [exact_x, *exact.parameters()], direction.double())
    for one, other in zip((found, *ours), (expected, *theirs), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_frozen_weights_and_copies_keep_their_own_gradients(gain):
    gain(2.0)
    layer = nn.Linear(4, 3)
    take_faster_products(layer)
    layer.weight.requires_grad_(False)
    copied = copy.deepcopy(layer)
    with torch.no_grad():
        copied.bias.add_(1)
    x = torch.randn(2, 4)
    torch.testing.assert_close(copied(x), layer(x) + 1)
    copied(x).sum().backward()
    assert (copied.weight.grad, layer.bias.grad) == (None, None)
    assert copied.bias.grad.tolist() == [2, 2, 2]


def test_other_types_autocast_and_tracing_take_the_usual_product(gain):
    gain(2.0)
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)
    take_faster_products(layer)
    assert layer.double()(x.double()).dtype == torch.float64
    layer.float()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert [node.target for node in torch.export.export(layer, (x,)).graph.nodes][-2] == torch.ops.aten.linear.default


@pytest.mark.parametrize(
    ("faster", "rank", "small", "expected"),
    [(2.0, None, 0, True), (1.4, None, 0, False), (2.0, "0", 0, False), (2.0, None, 100, False)],
)
def test_linear_layers_take_it_where_it_gains(faster, rank, small, expected, gain, monkeypatch):
    gain(faster)
    monkeypatch.setattr(products, "SMALL", small)
    if rank:
        monkeypatch.setenv("LOCAL_RANK", rank)
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Bilinear(4, 4, 1))
    take_faster_products(model)
    assert is_faster(model[0]) == expected


def test_the_gain_is_measured_once_and_is_0_without_onednn(monkeypatch):
    assert onednn_gain() == onednn_gain() > 0
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert onednn_gain.__wrapped__() == 0
