"""Bi-encoders of BERT's architecture on a CPU, with the vectors of sentence-transformers, which takes 3 s to import."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from rerank.data.embeddings import COSINE, DOT
from rerank.models.encoder_inputs import Passages
from rerank.models.gpu import AUTOCAST, Precision, choose_precision
from rerank.models.hub import MODULES_FILE
from rerank.models.packed_attention import attend
from rerank.models.quick_forward import order_weights, probe_of, quicken_body, without_padding
from rerank.models.word_pieces import WordPieces, open_word_pieces, read_settings
from rerank.utils.json_files import parse_json

NAMES = {
    "encoder.layer.": "layers.",
    "attention.self.": "",
    "attention.output.": "joined.",
    "intermediate.dense": "wide",
    "output.": "narrow.",
}
"""Parts of the names of a BertModel's weights in transformers, and what `Bert` has in their place."""
UNUSED = ("pooler.", "embeddings.position_ids")

SETTINGS = ("config.json", "sentence_bert_config.json", "config_sentence_transformers.json")
WEIGHTS = "model.safetensors"
USUAL = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "auto_map": None,
    "quantization_config": None,
}
USUAL_INPUTS = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
USUAL_VECTORS = {"truncate_dim": None, "requirements": None}
"""The values that SETTINGS may state for these names. Besides them, the second file may state FREE_INPUTS alone."""
FREE_INPUTS = ("max_seq_length", "do_lower_case")
MODULES = (("Transformer", "Pooling"), ("Transformer", "Pooling", "Normalize"))
POOLINGS = {"mean": "mean", "cls": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


class Ending(nn.Module):
    """The end of attention or layer; by the names of its parts, `rerank.models.fused` sees that a kernel can do it."""

    def __init__(self, inputs: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.dense, self.LayerNorm, self.dropout = nn.Linear(inputs, hidden), nn.LayerNorm(hidden, eps), nn.Dropout(0)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        normed: Tensor = self.LayerNorm(self.dense(x) + residual)
        return normed


class Layer(nn.Module):
    """A layer of BERT."""

    def __init__(self, hidden: int, inner: int, heads: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.wide = nn.Linear(hidden, inner)
        self.joined, self.narrow = Ending(hidden, hidden, eps), Ending(inner, hidden, eps)

    def forward(self, x: Tensor, passages: Passages) -> Tensor:
        """(1, tokens, hidden), as x."""
        parts = (self.query(x), self.key(x), self.value(x))
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended, _ = attend(self, query, key, value, None, passages=passages)
        x = self.joined(attended.flatten(2), x)
        out: Tensor = self.narrow(F.gelu(self.wide(x)), x)
        return out


class Bert(nn.Module):
    """What transformers' BertModel computes without dropout, for packed passages."""

    device = torch.device("cpu")

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, eps = config["hidden_size"], config["layer_norm_eps"]
        self.word_embeddings = _table(config["vocab_size"], hidden)
        self.position_embeddings = _table(config["max_position_embeddings"], hidden)
        self.token_type_embeddings = _table(config["type_vocab_size"], hidden)
        self.LayerNorm = nn.LayerNorm(hidden, eps)
        sizes = hidden, config["intermediate_size"], config["num_attention_heads"], eps
        self.layers = nn.ModuleList(Layer(*sizes) for _ in range(config["num_hidden_layers"]))

    def forward(
        self, input_ids: Tensor, position_ids: Tensor, passages: Passages, token_type_ids: Tensor | None = None
    ) -> SimpleNamespace:
        """The last_hidden_state, (1, tokens, hidden), of (1, tokens) inputs; token types are 0 by default."""
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(types)
        x = self.LayerNorm(x + self.position_embeddings(position_ids))
        for layer in self.layers:
            x = layer(x, passages)
        return SimpleNamespace(last_hidden_state=x)


@dataclass(frozen=True)
class BertEncoder:
    """What `BiEncoder` uses of a SentenceTransformer; `prompts` are those of queries and documents."""

    body: Any
    tokenizer: Any
    prompts: Mapping[str, str]
    similarity_fn_name: str
    pooling: str
    normalises: bool
    device = torch.device("cpu")

    @property
    def max_seq_length(self) -> int:
        return int(self.tokenizer.model_max_length)

    def encode_query(self, texts: Sequence[str], **settings: Any) -> Any:
        """(queries, dimensions) vectors; if `output_value` is None, what `_features` has of each query."""
        return self._encode(self.prompts["query"], texts, **settings)

    def encode_document(self, texts: Sequence[str], **settings: Any) -> Any:
        """As `encode_query`, of documents."""
        return self._encode(self.prompts["document"], texts, **settings)

    @torch.inference_mode()
    def _encode(
        self, prompt: str, texts: Sequence[str], batch_size: int = 32, output_value: str | None = "", **others: Any
    ) -> Any:
        order = np.argsort([-len(text) for text in texts])  # as in sentence-transformers: the longest texts first
        found: list[Any] = []
        for first in range(0, len(texts), batch_size):
            features = self._features([prompt + texts[place] for place in order[first : first + batch_size]])
            if output_value is None:
                found += [dict(zip(features, row, strict=True)) for row in zip(*features.values(), strict=True)]
            else:
                found.extend(self._pooled(features["token_embeddings"], features["attention_mask"]).numpy())
        found = [found[place] for place in np.argsort(order)]
        return found if output_value is None else np.stack(found)

    def _features(self, texts: list[str]) -> dict[str, Tensor]:
        """What the tokenizer makes of texts, (texts, tokens), and the token_embeddings, (texts, tokens, hidden)."""
        inputs = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        return {**inputs, "token_embeddings": self.body.forward(**inputs).last_hidden_state}

    def _pooled(self, hidden: Tensor, real: Tensor) -> Tensor:
        mask = real[..., None].float()
        vectors = hidden[:, 0] if self.pooling == "cls" else (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return F.normalize(vectors, dim=-1) if self.normalises else vectors


def open_bert(folder: Path, precision: Precision) -> BertEncoder | None:
    """The bi-encoder of a folder; None if its files state something that `BertEncoder` does not do, or are damaged.

    Raises UserError for a precision that the CPU does not have.
    """
    half = AUTOCAST.get(choose_precision(precision, Bert.device, "precision"))
    try:
        config, inputs, stated = map(read_settings, (folder / name for name in SETTINGS))
        pooling, normalises = _pooling(folder)
        compared = stated.get("similarity_fn_name") or COSINE
        usual = _agrees(config, USUAL) and _agrees(stated, USUAL_VECTORS) and compared in (COSINE, DOT)
        known = all(name in FREE_INPUTS or value == USUAL_INPUTS.get(name) for name, value in inputs.items())
        if not (usual and known) or config["hidden_size"] % config["num_attention_heads"]:
            return None
        prompts = {kind: stated.get("prompts", {}).get(kind) or "" for kind in ("query", "document")}
        body, tokenizer = _body(folder / WEIGHTS, config), _tokenizer(folder, inputs, config)
    except Exception:  # another layout, or a damaged file: sentence-transformers says what is wrong with it
        return None
    forward = without_padding(body.forward, 0, flash=False)
    probe = probe_of(
        config["vocab_size"], config.get("pad_token_id") or 0, body.position_embeddings.num_embeddings, body.device
    )
    quicken_body(body, forward, half, precision == "auto", probe)
    order_weights(body)
    return BertEncoder(body, tokenizer, prompts, compared, pooling, normalises)


def _agrees(settings: Mapping[str, Any], usual: Mapping[str, Any]) -> bool:
    return all(settings.get(name, value) == value for name, value in usual.items())


def _pooling(folder: Path) -> tuple[str, bool]:
    """How the vector of a text is made of those of its tokens, "mean" or "cls", and whether its length is 1.

    Raises ValueError or LookupError if it is made in another way.
    """
    if not (folder / MODULES_FILE).is_file():
        return "mean", False
    modules = parse_json((folder / MODULES_FILE).read_bytes(), list[dict[str, Any]])
    packages, names = zip(*((kind[0], kind[-1]) for kind in (one["type"].split(".") for one in modules)), strict=True)
    if {*packages, modules[0]["path"]} != {"sentence_transformers", ""} or names not in MODULES:
        raise ValueError(names)
    first, *others = (read_settings(folder / module["path"] / "config.json") for module in modules[1:])
    modes = [name for name, on in first.items() if name.startswith("pooling_mode_") and on] or [first["pooling_mode"]]
    ends = {value for settings in others for value in settings.values()}
    if len(modes) > 1 or not first.get("include_prompt", True) or not ends <= {"sentence_embedding"}:
        raise ValueError(modes)
    return POOLINGS[modes[0]], bool(others)


def _table(rows: int, columns: int) -> nn.Embedding:
    """Without values: torch would take a second to import what makes random ones without memory."""
    return nn.Embedding(rows, columns, _weight=torch.empty(rows, columns))


def _body(file: Path, config: Mapping[str, Any]) -> Bert:
    def name_of(name: str) -> str:
        return functools.reduce(lambda name, part: name.replace(*part), NAMES.items(), name.removeprefix("embeddings."))

    weights = {name_of(name): w.float() for name, w in load_file(file).items() if not name.startswith(UNUSED)}
    with torch.device("meta"):  # without memory for the values that the file has
        body = Bert(config).eval()
    body.load_state_dict(weights, assign=True)
    return body


def _tokenizer(folder: Path, inputs: Mapping[str, Any], config: Mapping[str, Any]) -> WordPieces:
    """The tokenizer, which cuts texts at the model's length. Raises ValueError if it is another than `WordPieces`."""
    tokenizer = open_word_pieces(folder)
    if tokenizer is None or (inputs.get("do_lower_case") and not tokenizer.backend_tokenizer.normalizer.lowercase):
        raise ValueError("sentence-transformers opens it, and may add lower case to it")
    most = inputs.get("max_seq_length") or min(tokenizer.model_max_length, config["max_position_embeddings"])
    tokenizer.model_max_length = most
    return tokenizer
