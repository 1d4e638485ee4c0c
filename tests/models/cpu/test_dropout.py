"""The compiled dropout against torch's operations."""

import pytest
import torch

from rerank.models.cpu.attention import missing_kernel
from rerank.models.cpu.dropout import drop, use_compiled_dropout
from rerank.models.dropout import drop_by_operations, seed_dropout

pytestmark = pytest.mark.skipif(bool(missing_kernel(torch.float32)), reason="there is no C compiler")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("shape", "keys"), [((1, 9, 33), (1, 9)), ((2, 3, 5, 5), (2, 3, 5)), ((4, 64), (1,))])
@pytest.mark.parametrize("p", [0.1, 0.9])
def test_values_and_gradients_are_those_of_the_operations(shape, keys, p, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype).transpose(-1, -2).contiguous().transpose(-1, -2).requires_grad_()
    keys = torch.randint(-(2**31), 2**31, keys, dtype=torch.int32)
    found, expected = (function(x, keys, 739982445, p) for function in (drop, drop_by_operations))
    assert torch.equal(found, expected)
    direction = torch.randn_like(expected)
    gradients = [torch.autograd.grad(out, x, direction)[0] for out in (found, expected)]
    assert torch.equal(*gradients)
    assert 0 < int((gradients[0] == 0).sum()) < x.numel()


def test_what_is_dropped_is_zero_whatever_it_was():
    x = torch.full((50, 32), float("nan"))
    assert set(drop(x, torch.arange(50, dtype=torch.int32), 7, 0.5).nan_to_num(1.0).unique().tolist()) == {0.0, 1.0}


def test_a_model_takes_it_where_kernels_are(monkeypatch):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    seed_dropout(model)
    monkeypatch.setattr("rerank.models.cpu.dropout.missing_kernel", lambda dtype: "no cc")
    use_compiled_dropout(model)
    assert model[1].drop is drop_by_operations
    monkeypatch.undo()
    use_compiled_dropout(model)
    assert model[1].drop is drop
