"""The kernels of a CUDA GPU against torch's operations in float64."""

import torch
import torch.nn.functional as F

from rerank.models.dropout import SeededDropout, drop_by_operations, seed_dropout, token_keys
from rerank.models.fused import kernel_error
from scripts.gpu_check.rows import Row, at_most
from scripts.gpu_check.setting import Setting

SHAPES = ((37, 96), (1500, 768))
"""Tokens and columns."""

P = 0.1
EPSILON = 1e-12
BOUNDS = {torch.float32: 1e-6, torch.bfloat16: 4e-3}
"""The norm of the largest difference, of the result and its gradients, over the norm; bf16 rounds to 1 part in 256."""


def check(setting: Setting) -> list[Row]:
    """Whether dropout drops the same values, and how far the sum with its norm is from float64."""
    if setting.kind != "cuda":
        return [Row("kernels", "not checked: are for CUDA GPUs")]
    device = torch.device(setting.device)
    if reason := kernel_error(device):
        return [Row("kernels", f"not used: {reason}")]
    rows = []
    for dtype, bound in BOUNDS.items():
        for tokens, columns in SHAPES:
            what = f"kernels, {str(dtype).partition('.')[2]}, {tokens} × {columns}"
            same, difference = _compared(tokens, columns, dtype, device)
            rows.append(Row(f"{what}: dropout", "the same" if same else "other values", "the same", same))
            rows.append(at_most(f"{what}: dropout, sum and norm: difference / norm", difference, bound))
    return rows


def _compared(tokens: int, columns: int, dtype: torch.dtype, device: torch.device) -> tuple[bool, float]:
    from rerank.models.triton_kernels import Drop, DropAddNorm

    layer = SeededDropout(P, 3, seed_dropout(torch.nn.Module()))
    seeds, places = torch.arange(tokens, device=device) * 2**33, torch.arange(tokens, device=device)
    dropping = token_keys(seeds, places), layer.layer_key, P
    x, gradient = torch.randn(2, tokens, columns, device=device).to(dtype).unbind()
    residual = torch.randn(tokens, columns, device=device)
    weight, bias = torch.randn(2, columns, device=device).unbind()
    leaves = [value.clone().requires_grad_() for value in (x, residual, weight, bias)]
    found = DropAddNorm.apply(*leaves, *dropping, EPSILON)
    found = [found, *torch.autograd.grad(found, leaves, gradient)]
    exact = [value.double().detach().requires_grad_() for value in leaves]
    total = drop_by_operations(exact[0], *dropping) + exact[1]
    expected = F.layer_norm(total, (columns,), exact[2], exact[3], EPSILON)
    expected = [expected, *torch.autograd.grad(expected, exact, gradient.double())]
    differences = [float((a - b).detach().norm() / b.detach().norm()) for a, b in zip(found, expected, strict=True)]
    return torch.equal(Drop.apply(x, *dropping), drop_by_operations(x, *dropping)), max(differences)
