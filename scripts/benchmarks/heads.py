"""The rounding error of a linear layer that is folded into a classification head (rerank/models/heads.py)."""

import copy
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from rerank.models.heads import folded
from scripts.benchmarks.report import check, publish

SIZES: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 1, "num_attention_heads": 6, "intermediate_size": 64}
IDS = dict.fromkeys(["pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"], 0)
ARCHITECTURES = {
    "BERT": (transformers.BertConfig(**SIZES, vocab_size=100), torch.tanh),
    "ELECTRA": (transformers.ElectraConfig(**SIZES, embedding_size=384, vocab_size=100), nn.functional.gelu),
    "ModernBERT": (transformers.ModernBertConfig(**SIZES, vocab_size=100, **IDS), nn.functional.gelu),
}
"""One architecture of each form, and the activation of its head."""

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def bench_heads(largest_score: float, out: Path | None) -> str:
    """The table: for each form the largest error of a score, in each type, against float64."""
    check(1, out)
    torch.manual_seed(0)
    vectors = nn.functional.layer_norm(torch.randn(1000, SIZES["hidden_size"]), [SIZES["hidden_size"]])
    linear = nn.Linear(SIZES["hidden_size"], 1)
    with torch.no_grad():
        linear.weight *= largest_score / (vectors @ linear.weight[0]).abs().max()
    rows = [{"form": "a linear layer"} | _errors([linear], vectors, linear)]
    for name, (config, activation) in ARCHITECTURES.items():
        body = transformers.AutoModel.from_config(config)
        body.pooler = None
        with folded(body.eval(), linear, 0) as found:
            if found is None:
                raise RuntimeError(f"{name}: the layer cannot be folded into its head")
            classifier, facts = found
            layers = [classifier.get_submodule(facts[key]) for key in ("dense", "norm", "output") if key in facts]
            layers.insert(1, activation)
            rows.append({"form": facts["form"], "architecture": name} | _errors(layers, vectors, linear))
    columns = {"form": "", "architecture": "", **dict.fromkeys(TYPES, ".1e")}
    title = f"Largest error of {len(vectors)} scores up to {largest_score:g} against float64, the head alone"
    settings = {"largest_score": largest_score, **SIZES}
    return publish(title, rows, columns, settings, torch.device("cpu"), out=out)


@torch.no_grad()
def _errors(layers: list[Any], vectors: Tensor, linear: nn.Linear) -> dict[str, float]:
    exact = nn.functional.linear(vectors.double(), linear.weight.double(), linear.bias.double())
    errors = {}
    for name, dtype in TYPES.items():
        values = vectors.to(dtype)
        for layer in layers:
            values = copy.deepcopy(layer).to(dtype)(values) if isinstance(layer, nn.Module) else layer(values)
        errors[name] = float((values.double() - exact).abs().max())
    return errors
