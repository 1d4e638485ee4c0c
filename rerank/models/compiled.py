"""Compiles the layers of a packed encoder, so that a GPU moves fewer bytes in fewer kernels.

torch.compile fuses the hash of dropout, residual sums, layer norms, activations and casts; matrix products and
attention stay the kernels that they are. Each layer is compiled by itself: all but the last share one graph, in which
numbers of tokens and passages are symbols. On a CPU nothing is compiled.
"""

import time
from typing import Any

import torch
from torch import Tensor, nn

from rerank.batches.batch import Packed
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.joint_projections import join_projections
from rerank.models.packing import layers_of
from rerank.models.probes import PROBE_LENGTHS, in_mode, probe_passages
from rerank.models.scoring import Autocast

GRAPHS = 64
"""The most graphs of one layer's code: two kinds of layer, with and without gradients or dropout, several encoders."""

OPTIONS = {
    # Both sums of a layer norm's gradient, over columns and over tokens, share a kernel: whatever the number of tokens,
    # which is then no guard, and with the dropout before, whose inputs are small.
    "triton.mix_order_reduction_non_strict_mode": True,
    "triton.mix_order_reduction_max_reads": 16,
}
"""Of Inductor, as far as the installed version has them."""

TOLERANCE = 0.05
"""The largest difference of gradients, relative to their norm; rounding to bf16 gives about 0.01."""


def compile_if_useful(model: CrossEncoder, token_types: bool, device: torch.device, autocast: Autocast) -> str:
    """Compiles a model where it gains: a packed encoder in half precision on a GPU whose attention is one kernel.

    A few passages are trained on with and without it. If that fails, or the gradients differ, the model stays as it
    was. Gradients of the model are removed. Returns a line that says what was done, or "" if nothing was tried.
    """
    if device.type != "cuda" or model.is_padded or torch.cuda.get_device_capability(device) < (8, 0):
        return ""
    with autocast():
        half = torch.is_autocast_enabled("cuda")
    if not half:
        return ""
    start = time.perf_counter()
    reason = compile_layers(model, token_types, device, autocast)
    if reason:
        return f"the encoder is not compiled, so training is slower: {reason}"
    return f"compiled the encoder in {time.perf_counter() - start:.0f} s"


def compile_layers(
    model: CrossEncoder, token_types: bool, device: torch.device, autocast: Autocast, backend: Any = "inductor"
) -> str:
    """Compiles the layers and the embeddings of a model; returns "", or the reason why they are left as they were."""
    vocab_size = model.encoder.config.get_text_config().vocab_size
    inputs = probe_passages(model.pad_id, vocab_size, model.max_length, PROBE_LENGTHS)
    types = torch.zeros_like(inputs.input_ids) if token_types else None
    inputs = inputs._replace(token_types=types).seeded(torch.tensor([2**33])).to(device)
    expected = _gradient(model, inputs, autocast)
    parts = compile_parts(model, backend)
    try:
        error = float((_gradient(model, inputs, autocast) - expected).norm() / expected.norm())
        reason = "" if error <= TOLERANCE else f"its gradients differ, by {error:.1g}"
    except Exception as failure:  # torch, triton and the C compiler that triton needs raise different types
        reason = f"{type(failure).__name__}: {' '.join(str(failure).split())[:200]}"
    model.compiled = not reason
    if reason:
        model.zero_grad(set_to_none=True)
        for part in parts:
            del part.forward
    return reason


def compile_parts(model: CrossEncoder, backend: Any = "inductor") -> list[Any]:
    """Compiles each layer, and the embeddings with their norm and dropout, when first called; returns them."""
    # Without it, the last layer would run the graph of the others: it differs from them in a hook alone.
    torch._dynamo.config.skip_nnmodule_hook_guards = False
    # Without it, a dropout rate is an input of the graph, and its scale a kernel of its own.
    torch._dynamo.config.specialize_float = True
    torch._dynamo.config.recompile_limit = max(GRAPHS, torch._dynamo.config.recompile_limit)
    known = torch._inductor.list_options()
    options = {name: value for name, value in OPTIONS.items() if name in known} if backend == "inductor" else None
    settings: dict[str, Any] = {"dynamic": True, "fullgraph": True, "options": options}
    embeddings = getattr(model.encoder.base_model, "embeddings", None)
    parts = [*layers_of(model.encoder), *([embeddings] if isinstance(embeddings, nn.Module) else ())]
    for part in parts:
        part.forward = torch.compile(part.forward, backend=join_projections(backend), **settings)
    return parts


def _gradient(model: CrossEncoder, inputs: Packed, autocast: Autocast) -> Tensor:
    """The gradient of all parameters for the sum of the scores, (values,) float32."""
    with in_mode(model, training=True):
        model.zero_grad(set_to_none=True)
        with autocast():
            scores = model(inputs)
        scores.sum().backward()
        gradient = torch.cat([p.grad.flatten().float() for p in model.parameters() if p.grad is not None])
        model.zero_grad(set_to_none=True)
    return gradient
