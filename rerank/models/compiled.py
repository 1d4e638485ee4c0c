"""Layers of a cross-encoder by torch.compile, on a CUDA GPU in half precision.

A compiled layer joins dropout, sums, norms and activations, which torch's operations write to the GPU's memory one by
one. `nn.Module.compile` compiles in place: the model keeps its modules, names and weights.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from rerank.models.gpu import SMALL, Autocast
from rerank.models.packing import in_mode, layers_of, probe_of

FARTHEST_GRADIENT = 0.1
"""The largest norm of the difference of two gradients in half precision, over the norm, that rounding explains."""

WORTH_COMPILING = 50_000
"""Pairs to score from which compiling, about 3 s, takes less time than it saves: about 70 µs a pair."""

AVOIDED = "triton.mix_order_reduction"
"""An option of torch.compile that is off, where there is one, in all that was measured."""


def compile_layers(model: Any, autocast: Autocast) -> str:
    """Compiles the layers of a CrossEncoder that takes packed passages on a CUDA GPU in half precision.

    The last layer, which has hooks, is not compiled. The gradient of a few passages is first computed by a compiled
    copy, in about 8 s with training's own; returns why the model stays as it is, "" if it is compiled or has no use of
    it: on another device, in float32, padded, without FlashAttention, or SMALL.
    """
    if model.compiled or not _is_of_use(model, autocast):
        return ""
    device = next(model.parameters()).device
    expected, own = _gradient(model, autocast), model.encoder
    try:
        model.encoder = copy.deepcopy(own)
        _compile(model.encoder)
        difference = float((_gradient(model, autocast) - expected).norm() / expected.norm())
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Triton, the C compiler, the driver and torch's tracer raise different types
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        return f"layers are not compiled on {device}: {reason}"
    finally:
        model.encoder = own
    if not difference <= FARTHEST_GRADIENT:
        return f"layers are not compiled on {device}: their gradient differs by {difference:.1g} of its norm"
    _compile(own)
    model.compiled = True
    return ""


def _is_of_use(model: Any, autocast: Autocast) -> bool:
    if next(model.parameters()).device.type != "cuda" or model.is_padded or not model.flash:
        return False
    with autocast():
        half = torch.is_autocast_enabled("cuda")
    return half and model.last_token is None and sum(weight.numel() for weight in model.parameters()) >= SMALL


def _compile(encoder: Any) -> None:
    options = {AVOIDED: False} if AVOIDED in torch._inductor.list_options() else None
    for module in encoder.modules():
        if isinstance(module, nn.LayerNorm):
            module.register_forward_hook(_in_half)
    for layer in layers_of(encoder)[:-1]:
        layer.compile(dynamic=True, fullgraph=True, options=options)
    embeddings = getattr(encoder.base_model, "embeddings", None)
    if isinstance(embeddings, nn.Module):
        embeddings.compile(dynamic=True, options=options)


def _in_half(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    """Hook of a norm: autocast makes its output float32, which the next sum would write and read."""
    return output.to(torch.get_autocast_dtype("cuda")) if torch.is_autocast_enabled("cuda") else output


def _gradient(model: Any, autocast: Autocast) -> Tensor:
    """The gradient of the sum of a few scores without dropout, (weights,) float32."""
    weights = [weight for weight in model.encoder.parameters() if weight.requires_grad]
    with in_mode(model, training=False), torch.enable_grad():
        with autocast():
            scores = model(probe_of(model))
        found = torch.autograd.grad(scores.float().sum(), weights, allow_unused=True)
    return torch.cat([one.flatten().float() for one in found if one is not None])
