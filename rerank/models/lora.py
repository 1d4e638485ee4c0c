"""Low-rank adaptation (Hu et al. 2022, arXiv:2106.09685, equation 3): a linear layer W learns W + 2 B A instead.

peft puts B (outputs, rank) and A (rank, inputs) next to every linear layer of the body, which is frozen with all its
other weights; the head is trained as always. A checkpoint has the sums as plain weights.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from rerank.utils.errors import needed

ALPHA_PER_RANK = 2
"""The product B A is multiplied by alpha / rank, which is this number for every rank."""


def check_lora(rank: int) -> None:
    """Raises UserError if a rank is given and peft cannot be imported."""
    if rank:
        needed("peft", f"--encoder.lora-rank {rank}", "lora")


def add_lora(model: Any, rank: int, seed: int) -> None:
    """Freezes the body of a Hugging Face model and adds trainable A and B to its linear layers, drawn with `seed`.

    B is 0 at first, so the model computes what it did before. Raises UserError if peft cannot be imported.
    """
    check_lora(rank)
    from peft import LoraConfig, inject_adapter_in_model

    settings = LoraConfig(r=rank, lora_alpha=ALPHA_PER_RANK * rank, lora_dropout=0.0, target_modules="all-linear")
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the layout of GPT-2's layers, which peft sets right
        torch.manual_seed(seed)
        inject_adapter_in_model(settings, model.base_model)


@torch.no_grad()
def merged_weights(model: Any) -> dict[str, Tensor] | None:
    """The state of a model with W + 2 B A in place of W, B and A, which are not changed; None if it has no B and A."""
    layers = {name: module for name, module in model.named_modules() if hasattr(module, "get_delta_weight")}
    if not layers:
        return None
    weights: dict[str, Tensor] = {}
    for key, value in model.state_dict().items():
        layer, _, rest = key.rpartition(".base_layer.")
        if layer in layers:
            delta = layers[layer].get_delta_weight("default") if rest == "weight" else 0
            weights[f"{layer}.{rest}"] = value + delta
        elif key.rpartition(".lora_")[0] not in layers:
            weights[key] = value
    return weights
