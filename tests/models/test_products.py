"""Products by oneDNN against those of torch: values, gradients, and which layers of which models take them."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from rerank.models import products
from rerank.models.products import prefers_onednn, take_faster_products


@pytest.fixture
def maker(monkeypatch):
    """Sets whose processor it is; models of any size count."""
    monkeypatch.setattr(products, "SMALL", 0)

    def install(name):
        monkeypatch.setattr(products, "processor", lambda: f"vendor_id\t: {name} flags\t: fpu")
        monkeypatch.setattr(products, "prefers_onednn", prefers_onednn.__wrapped__)

    return install


def is_faster(layer):
    return isinstance(layer.forward, partial)


@pytest.mark.parametrize("shape", [(7, 12), (2, 3, 12), (1, 1, 12)])
@pytest.mark.parametrize(("bias", "out"), [(True, 5), (False, 5), (True, 20)])
def test_values_and_gradients_are_those_in_float64(shape, bias, out, maker):
    maker("AuthenticAMD")
    torch.manual_seed(0)
    layer, x = nn.Linear(12, out, bias=bias), torch.randn(*shape[:-1], 24)[..., ::2].requires_grad_()
    exact, exact_x = copy.deepcopy(layer).double(), x.detach().double().requires_grad_()
    take_faster_products(layer)
    assert is_faster(layer)
    found, expected = layer(x), exact(exact_x)
    direction = torch.randn_like(found)
    ours = torch.autograd.grad(found, [x, *layer.parameters()], direction)
    theirs = torch.autograd.grad(expected, [exact_x, *exact.parameters()], direction.double())
    for one, other in zip((found, *ours), (expected, *theirs), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_frozen_weights_and_copies_keep_their_own_gradients(maker):
    maker("AuthenticAMD")
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


def test_other_types_autocast_and_tracing_take_the_usual_product(maker):
    maker("AuthenticAMD")
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)
    take_faster_products(layer)
    assert layer.double()(x.double()).dtype == torch.float64
    layer.float()
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert [node.target for node in torch.export.export(layer, (x,)).graph.nodes][-2] == torch.ops.aten.linear.default


@pytest.mark.parametrize(
    ("name", "small", "expected"), [("AuthenticAMD", 0, True), ("GenuineIntel", 0, False), ("AuthenticAMD", 100, False)]
)
def test_linear_layers_take_it_on_processors_of_amd(name, small, expected, maker, monkeypatch):
    maker(name)
    monkeypatch.setattr(products, "SMALL", small)
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Bilinear(4, 4, 1))
    take_faster_products(model)
    assert is_faster(model[0]) == expected


def test_a_torch_without_onednn_takes_its_own(maker, monkeypatch):
    maker("AuthenticAMD")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not products.prefers_onednn()
