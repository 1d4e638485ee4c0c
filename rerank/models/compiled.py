"""Compiles the layers of a cross-encoder with torch.compile, on a CUDA GPU in half precision.

A compiled layer fuses dropout, sums, norms and activations; uncompiled, each of them writes to the GPU's memory.
`nn.Module.compile` compiles in place: the model keeps its modules, names and weights.
"""

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rerank.models.cross_encoder import CrossEncoder
from rerank.models.gpu import SMALL, Autocast
from rerank.models.packing import evaluating, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FARTHEST_GRADIENT = 0.1
"""Allowed relative error (norm of the difference over norm) of the compiled gradient in half precision."""

WORTH_COMPILING = 50_000
"""Pairs to score from which compiling pays: it takes about 3 s and saves about 70 µs a pair."""

AVOIDED = "triton.mix_order_reduction"
"""An option of torch.compile that is switched off where it exists, as in all measurements."""


def compile_layers(model: CrossEncoder, autocast: Autocast) -> str:
    """Compiles the layers of a CrossEncoder that takes packed passages on a CUDA GPU in half precision.

    The last layer has hooks and is not compiled. The gradient of a few passages by a compiled copy is compared first,
    which takes about 8 s. Returns the reason if compiling failed; "" if the model is compiled or if compiling does not
    apply: on other devices, in float32, with padding, without FlashAttention, and for a SMALL model.
    """
    if model.compiled or not _applies(model, autocast):
        return ""
    device = next(model.parameters()).device
    expected, encoder = _gradient(model, autocast), model.encoder
    try:
        model.encoder = copy.deepcopy(encoder)
        _compile(model.encoder)
        difference = float((_gradient(model, autocast) - expected).norm() / expected.norm())
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Triton, the C compiler, the driver and torch's tracer raise different types
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        return f"layers are not compiled on {device}: {reason}"
    finally:
        model.encoder = encoder
    if not difference <= FARTHEST_GRADIENT:
        return f"layers are not compiled on {device}: their gradient differs by {difference:.1g} of its norm"
    _compile(encoder)
    model.compiled = True
    return ""


def _applies(model: CrossEncoder, autocast: Autocast) -> bool:
    if next(model.parameters()).device.type != "cuda" or model.is_padded or not model.flash:
        return False
    with autocast():
        half = torch.is_autocast_enabled("cuda")
    return half and model.last_token is None and sum(weight.numel() for weight in model.parameters()) >= SMALL


def _compile(encoder: "PreTrainedModel") -> None:
    options = {AVOIDED: False} if _is_option(AVOIDED) else None
    for module in encoder.modules():
        if isinstance(module, nn.LayerNorm):
            module.register_forward_hook(_in_half)
    for layer in layers_of(encoder)[:-1]:
        layer.compile(dynamic=True, fullgraph=True, options=options)
    embeddings = getattr(encoder.base_model, "embeddings", None)
    if isinstance(embeddings, nn.Module):
        embeddings.compile(dynamic=True, options=options)


def _is_option(name: str) -> bool:
    """Whether this torch.compile has an option; nothing is compiled."""
    try:
        torch.compile(lambda: None, options={name: False})
    except RuntimeError:
        return False
    return True


def _in_half(module: nn.Module, args: object, output: Tensor) -> Tensor:
    """Hook of a norm: returns its output in half precision; under autocast a norm returns float32."""
    return output.to(torch.get_autocast_dtype("cuda")) if torch.is_autocast_enabled("cuda") else output


def _gradient(model: CrossEncoder, autocast: Autocast) -> Tensor:
    """The gradient of the sum of a few scores without dropout, (weights,) float32."""
    weights = [weight for weight in model.encoder.parameters() if weight.requires_grad]
    with evaluating(model), torch.enable_grad():
        with autocast():
            scores = model(model.probe())
        gradients = torch.autograd.grad(scores.float().sum(), weights, allow_unused=True)
    return torch.cat([gradient.flatten().float() for gradient in gradients if gradient is not None])
