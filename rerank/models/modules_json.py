"""The files with which sentence-transformers reads an encoder and a linear layer on its [CLS] vector."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

IDENTITY = "torch.nn.modules.linear.Identity"
"""The activation of the scores in sentence-transformers, whose default is the sigmoid."""

MODULES_FILE = "modules.json"

_MODULES = {
    "": "sentence_transformers.base.modules.transformer.Transformer",
    "1_Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "2_Dense": "sentence_transformers.base.modules.dense.Dense",
}


def write_modules(head: nn.Linear, folder: Path) -> None:
    """Adds modules.json and the settings of its modules, Transformer → Pooling → Dense, to an encoder's folder."""
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": kind}
        for number, (path, kind) in enumerate(_MODULES.items())
    ]
    text = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    files: dict[str, Any] = {
        MODULES_FILE: modules,
        "config_sentence_transformers.json": {"model_type": "CrossEncoder", "activation_fn": IDENTITY},
        "sentence_bert_config.json": {
            "transformer_task": "feature-extraction",
            "modality_config": text,
            "module_output_name": "token_embeddings",
        },
        "1_Pooling/config.json": {"embedding_dimension": head.in_features, "pooling_mode": "cls"},
        "2_Dense/config.json": {
            "in_features": head.in_features,
            "out_features": head.out_features,
            "activation_function": IDENTITY,
            "module_output_name": "scores",
        },
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    save_file(
        {f"linear.{name}": value for name, value in head.state_dict().items()}, folder / "2_Dense/model.safetensors"
    )
