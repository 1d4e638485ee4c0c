"""The rounding error of a linear layer that is folded into a classification head (rerank/models/heads.py)."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from rerank.models.heads import folded
from scripts.benchmarks.report import Out, publish

SCORES = 1000
SIZES: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 1, "num_attention_heads": 6, "intermediate_size": 64}
IDS: dict[str, Any] = dict.fromkeys(["pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"], 0)
ARCHITECTURES = {
    "BERT": (transformers.BertConfig(**SIZES, vocab_size=100), torch.tanh),
    "ELECTRA": (transformers.ElectraConfig(**SIZES, embedding_size=384, vocab_size=100), nn.functional.gelu),
    "ModernBERT": (transformers.ModernBertConfig(**SIZES, vocab_size=100, **IDS), nn.functional.gelu),
}
"""One architecture of each form, and the activation of its head."""
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def heads(*, largest_score: float = 5.0, out: Out = None) -> None:
    """Largest error of a score by the head of each form, in each type of numbers, against float64.

    Parameters
    ----------
    largest_score
        The largest of the scores, which are of random vectors.
    """
    torch.manual_seed(0)
    width = SIZES["hidden_size"]
    vectors, linear = nn.functional.layer_norm(torch.randn(SCORES, width), [width]), nn.Linear(width, 1)
    with torch.no_grad():
        linear.weight *= largest_score / (vectors @ linear.weight[0]).abs().max()
    rows = [{"form": "a plain linear layer"} | _errors([linear], vectors, linear)]
    for name, (config, activation) in ARCHITECTURES.items():
        body = transformers.AutoModel.from_config(config)
        body.pooler = None
        with folded(body.eval(), linear, 0) as found:
            if found is None:
                raise RuntimeError(f"{name}: the layer cannot be folded into its head")
            classifier, facts = found
            layers: list[Any] = [
                classifier.get_submodule(str(facts[key])) for key in ("dense", "norm", "output") if key in facts
            ]
            layers.insert(1, activation)
            rows.append({"form": facts["form"], "architecture": name} | _errors(layers, vectors, linear))
    columns = {"form": "", "architecture": "", **dict.fromkeys(TYPES, ".2g")}
    title = f"Largest error of {SCORES:,} scores up to {largest_score:g} against float64, the head alone"
    publish(title, rows, columns, {"largest_score": largest_score, **SIZES}, torch.device("cpu"), out=out)


@torch.no_grad()
def _errors(layers: Sequence[Any], vectors: Tensor, linear: nn.Linear) -> dict[str, Any]:
    """Name of a type -> the largest error of the layers in it, compared with the linear layer in float64."""
    exact = nn.functional.linear(vectors.double(), linear.weight.double(), linear.bias.double())
    errors: dict[str, Any] = {}
    for name, dtype in TYPES.items():
        values = vectors.to(dtype)
        for layer in layers:
            values = copy.deepcopy(layer).to(dtype)(values) if isinstance(layer, nn.Module) else layer(values)
        errors[name] = float((values.double() - exact).abs().max())
    return errors
