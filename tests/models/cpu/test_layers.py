"""The compiled dropout, its sum with a residual that is normalised, and transposes, against torch's operations."""

from functools import partial
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from rerank.models.cpu.attention import missing_kernel
from rerank.models.cpu.layers import ROWS, Drop, DropAddNorm, transposed
from rerank.models.dropout import drop_by_operations
from rerank.models.fused import use_kernels
from tests.models.tiny import open_tiny, scores_and_gradients
from tests.support.small_world import make_texts
from tests.support.tiny_encoders import make_encoder

pytestmark = pytest.mark.skipif(bool(missing_kernel(torch.float32)), reason="there is no C compiler")
TYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("shape", "keys"), [((1, 9, 33), (1, 9)), ((2, 3, 5, 5), (2, 3, 5)), ((4, 64), (1,))])
@pytest.mark.parametrize("p", [0.1, 0.9])
def test_values_and_gradients_are_those_of_the_operations(shape, keys, p, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype).transpose(-1, -2).contiguous().transpose(-1, -2).requires_grad_()
    keys = torch.randint(-(2**31), 2**31, keys, dtype=torch.int32)
    found, expected = (function(x, keys, 739982445, p) for function in (Drop.apply, drop_by_operations))
    assert torch.equal(found, expected)
    direction = torch.randn_like(expected)
    gradients = [torch.autograd.grad(out, x, direction)[0] for out in (found, expected)]
    assert torch.equal(*gradients)
    assert 0 < int((gradients[0] == 0).sum()) < x.numel()


def test_what_is_dropped_is_zero_whatever_it_was():
    x = torch.full((50, 32), float("nan"))
    assert set(Drop.apply(x, torch.arange(50, dtype=torch.int32), 7, 0.5).nan_to_num(1.0).unique().tolist()) == {
        0.0,
        1.0,
    }


@pytest.mark.parametrize(("dtype", "residual_dtype"), list(product(TYPES, TYPES)))
@pytest.mark.parametrize("shape", [(1, 37), (3, 2 * ROWS, 96)])
@pytest.mark.parametrize("drops", [False, True])
def test_the_norm_of_a_sum_is_that_in_float64(shape, drops, dtype, residual_dtype):
    torch.manual_seed(0)
    x, residual, direction = torch.randn(3, *shape).unbind()
    weight, bias = torch.randn(2, shape[-1]).unbind()
    leaves = [x.to(dtype), residual.bfloat16().to(residual_dtype), weight, bias]
    for leaf in leaves:
        leaf.requires_grad_()
    keys = torch.randint(-(2**31), 2**31, shape[:-1], dtype=torch.int32) if drops else None
    found = DropAddNorm.apply(*leaves, keys, 7, 0.3, 1e-12)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    total = (drop_by_operations(exact[0], keys, 7, 0.3) if drops else exact[0]) + exact[1]
    expected = F.layer_norm(total, shape[-1:], exact[2], exact[3], 1e-12)
    direction = direction.to(dtype)
    ours = torch.autograd.grad(found, leaves, direction)
    theirs = torch.autograd.grad(expected, exact, direction.double())
    assert found.dtype == dtype
    assert [one.dtype for one in ours] == [leaf.dtype for leaf in leaves]
    for one, other in zip((found, *ours), (expected, *theirs), strict=True):
        assert (one - other).norm() <= (1e-6 if torch.float32 == one.dtype == dtype else 4e-3) * other.norm()


@pytest.mark.parametrize("dtype", TYPES)
def test_the_norm_depends_neither_on_threads_nor_on_other_rows(dtype):
    def values(x, residual, keys):
        out = DropAddNorm.apply(x, residual, weight, bias, keys, 7, 0.3, 1e-12)
        return out.detach(), *torch.autograd.grad(out.float().square().sum(), [x, residual, weight, bias])

    torch.manual_seed(0)
    x, residual = torch.randn(2, 5 * ROWS + 3, 33).to(dtype).requires_grad_()
    weight, bias = torch.randn(2, 33).requires_grad_()
    keys, threads = torch.arange(len(x), dtype=torch.int32), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = values(x, residual, keys)
        torch.set_num_threads(3)
        assert all(map(torch.equal, values(x, residual, keys), alone))
    finally:
        torch.set_num_threads(threads)
    some = values(x[7:80], residual[7:80], keys[7:80])
    assert all(torch.equal(one, other[7:80]) for one, other in zip(some[:3], alone[:3], strict=True))


def test_models_of_berts_layout_take_it_in_bf16_alone(tmp_path):
    texts = make_texts({f"d{i}": length for i, length in enumerate([0, 5, 20, 60, 90])})
    model, _, inputs_of = open_tiny(tmp_path, texts, "bert", make_encoder)
    inputs = inputs_of([("q", doc_id) for doc_id in texts]).seeded(torch.arange(len(texts)))
    halves = (False, True)
    expected = [_scores_and_gradients(model.train(), inputs, half) for half in halves]
    use_kernels(model, torch.device("cpu"))
    found = [_scores_and_gradients(model, inputs, half) for half in halves]
    assert isinstance(model.encoder.encoder.layer[0].output.forward, partial)
    assert all(map(torch.equal, found[0], expected[0]))
    assert not torch.equal(found[1][0], expected[1][0])
    for one, other in zip(found[1], expected[0], strict=True):
        assert (one - other).norm() < 0.05 * other.norm()


def _scores_and_gradients(model, inputs, half):
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        scores, gradients = scores_and_gradients(model, inputs)
    return scores, torch.cat([gradient.flatten() for gradient in gradients.values()])


@pytest.mark.parametrize("shape", [(48, 32), (33, 50), (16, 7), (1, 64)])
def test_a_transpose_has_the_same_values(shape):
    x = torch.randn(shape[0], 2 * shape[1])[:, ::2]
    assert transposed(x).is_contiguous()
    assert torch.equal(transposed(x), x.t())
