"""Whether a model on a CUDA GPU runs the kernels of `rerank.models.kernels`, and where."""

import functools
from typing import Any

import torch
from torch import Tensor, nn

from rerank.models.dropout import SeededDropout, drop_by_operations

LAYOUT = {"dense", "LayerNorm", "dropout"}
"""The parts of a module that ends the attention or the layer of BERT, RoBERTa, ELECTRA and others of their layout."""

LARGEST = 2**31
"""The kernels count the values of a tensor in 32 bits."""


@functools.cache
def kernel_error(device: torch.device) -> str:
    """Why a CUDA GPU cannot run the kernels, or "": Triton needs a C compiler, and is not on every system."""
    try:
        from rerank.models.kernels import Drop

        x, keys = torch.ones(3, 96, device=device), torch.arange(3, dtype=torch.int32, device=device)
        same = torch.equal(Drop.apply(x, keys, 7, 0.5), drop_by_operations(x, keys, 7, 0.5))
    except Exception as error:  # Triton, the C compiler and the driver raise different types
        return " ".join(str(error).split())[:200] or type(error).__name__
    return "" if same else "a kernel of Triton drops other values than torch's operations"


def use_kernels(model: nn.Module) -> None:
    """A kernel does dropout, and another one dropout, sum and norm in BERT's layers, whose output is then bf16."""
    from rerank.models.kernels import Drop

    for module in model.modules():
        if isinstance(module, SeededDropout):
            module.drop = Drop.apply
        if {name for name, _ in module.named_children()} == LAYOUT and type(module.LayerNorm) is nn.LayerNorm:
            module.forward = functools.partial(_drop_add_norm, module)


def use_operations(model: nn.Module) -> None:
    """Undoes `use_kernels`."""
    for module in model.modules():
        if isinstance(module, SeededDropout):
            module.drop = drop_by_operations
        if isinstance(vars(module).get("forward"), functools.partial):
            del module.forward


def _drop_add_norm(module: Any, hidden_states: Tensor, input_tensor: Tensor) -> Tensor:
    """The forward pass of a module of BERT's layout: the norm of its projection, with dropout, plus the residual."""
    from rerank.models.kernels import DropAddNorm

    x, dropout, norm = module.dense(hidden_states), module.dropout, module.LayerNorm
    drops = dropout.training and dropout.p > 0
    if x.dtype != torch.bfloat16 or x.numel() >= LARGEST or (drops and not isinstance(dropout, SeededDropout)):
        out: Tensor = norm(dropout(x) + input_tensor)
        return out
    dropping = (dropout.row_keys(x), dropout.layer_key, dropout.p) if drops else (None, 0, 0.0)
    joined: Tensor = DropAddNorm.apply(x, input_tensor, norm.weight, norm.bias, *dropping, norm.eps)
    return joined
