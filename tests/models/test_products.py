"""Products by oneDNN against those of torch: values, gradients, and which layers of which models take them."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from rerank.models import processor, products
from rerank.models.processor import prefers_onednn, prefers_onednn_for_gradients, prefers_onednn_in_bf16
from rerank.models.products import autocast_on_cpu, multiply, take_faster_products


@pytest.fixture
def maker(monkeypatch):
    """Sets whose processor it is; models of any size count."""
    monkeypatch.setattr(products, "SMALL", 0)

    def install(name, flags="fpu", vectors="AVX512"):
        monkeypatch.setattr(processor, "processor", lambda: f"vendor_id\t: {name} flags\t: {flags}")
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: vectors)
        for function in (prefers_onednn, prefers_onednn_for_gradients, prefers_onednn_in_bf16):
            for module in (processor, products):
                monkeypatch.setattr(module, function.__name__, function.__wrapped__)

    return install


@pytest.fixture
def types(monkeypatch):
    """The types of the products that are ours."""
    found = []

    def counted(x, *others):
        found.append(x.dtype)
        return multiply(x, *others)

    monkeypatch.setattr(products, "multiply", counted)
    return found


FLAGS = {"avx512_bf16", "amx_bf16"}
in_bf16 = pytest.mark.skipif(FLAGS.isdisjoint(processor.processor().split()), reason="the processor has no bf16")


@pytest.mark.parametrize(
    ("dtype", "vectors", "by_onednn"),
    [
        (torch.float32, "AVX512", ["forward", "to x", "to weight", "forward again"]),
        (torch.float32, "AVX2", ["forward", "forward again"]),
        pytest.param(torch.bfloat16, "AVX512", ["forward", "forward again"], marks=in_bf16),
    ],
)
@pytest.mark.parametrize("shape", [(7, 12), (2, 3, 12), (1, 1, 12)])
@pytest.mark.parametrize(("bias", "out"), [(True, 5), (False, 5), (True, 20)])
def test_values_and_gradients_are_those_in_float64(shape, bias, out, dtype, vectors, by_onednn, maker, types):
    maker("AuthenticAMD", "avx512_bf16", vectors)
    torch.manual_seed(0)
    layer, x = nn.Linear(12, out, bias=bias), torch.randn(*shape[:-1], 24)[..., ::2].requires_grad_()
    exact, exact_x = copy.deepcopy(layer).double(), x.detach().double().requires_grad_()
    take_faster_products(layer)
    half, bound = dtype == torch.bfloat16, 1e-5 if dtype == torch.float32 else 0.03
    with torch.autocast("cpu", dtype, enabled=half):
        found, expected = layer(x), exact(exact_x)
    direction = torch.randn_like(found)
    ours = torch.autograd.grad(found, [x, *layer.parameters()], direction)
    theirs = torch.autograd.grad(expected, [exact_x, *exact.parameters()], direction.double())
    assert found.dtype == dtype
    assert {one.dtype for one in ours} == {torch.float32}
    for one, other in zip((found, *ours), (expected, *theirs), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=bound, atol=bound)
    with torch.no_grad(), torch.autocast("cpu", dtype, enabled=half):
        assert torch.equal(layer(x), found)
    assert types == [dtype] * len(by_onednn)


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


@in_bf16
def test_weights_are_cast_once_in_a_block_without_gradients(maker):
    maker("GenuineIntel", "amx_bf16")
    layer, x = nn.Linear(4, 3), torch.ones(2, 4)
    take_faster_products(layer)
    block = partial(autocast_on_cpu, torch.bfloat16)
    with torch.no_grad(), block():
        before = layer(x)
        layer.weight.data.add_(1)  # as a fused optimizer, of which autograd does not know
        with block():
            assert torch.equal(layer(x), before)
        with torch.enable_grad():
            assert (layer(x) - before).min() > 3
    with torch.no_grad(), block():
        assert (layer(x) - before).min() > 3
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        after = layer(x)
        layer.weight.data.sub_(1)
        assert (after - layer(x)).min() > 3


def test_other_types_and_tracing_take_the_usual_product(maker, types):
    maker("AuthenticAMD")
    layer, x = nn.Linear(4, 3), torch.randn(2, 4)
    take_faster_products(layer)
    assert layer.double()(x.double()).dtype == torch.float64
    layer.float()
    with torch.autocast("cpu", torch.bfloat16):  # the processor has no bf16
        assert layer(x).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.float16):
        assert layer(x).dtype == torch.float16
    assert [node.target for node in torch.export.export(layer, (x,)).graph.nodes][-2] == torch.ops.aten.linear.default
    assert types == []


@pytest.mark.parametrize(
    ("name", "small", "expected"), [("AuthenticAMD", 0, True), ("GenuineIntel", 0, False), ("AuthenticAMD", 100, False)]
)
def test_linear_layers_take_it_in_float32_on_processors_of_amd(name, small, expected, maker, types, monkeypatch):
    maker(name)
    monkeypatch.setattr(products, "SMALL", small)
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU())
    take_faster_products(model)
    model(torch.ones(1, 4))
    assert types == [torch.float32] * expected


def test_a_torch_without_onednn_takes_its_own(maker, monkeypatch):
    maker("AuthenticAMD", "avx512_bf16")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not products.prefers_onednn()
    assert not products.prefers_onednn_in_bf16()
