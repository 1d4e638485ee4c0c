"""Writes and opens the folder of an exported cross-encoder."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor, nn

from rerank.batches.batch import Packed
from rerank.batches.templates import open_template
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.encoder import from_folder
from rerank.models.export.formats import OPENERS, WRITERS, Graph, Rows
from rerank.models.gpu import Autocast
from rerank.models.hub import EXPORT_FILE, Recorded, quiet_transformers, read_configs, recorded_cut
from rerank.models.packing import evaluating, first_token_part, layers_of
from rerank.models.pooling import POOLINGS, expect_pooling
from rerank.models.sizes import check_sizes
from rerank.utils.errors import UserError
from rerank.utils.inside import check_inside
from rerank.utils.integrity import Record, changes, record_of
from rerank.utils.json_files import read_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOLERANCE = 1e-3
"""Allowed difference between the scores of a float32 graph and of the model, relative to the largest score."""

IMPLEMENTATION = "rerank_rows"
TOKENS_PER_CALL = 1024
"""Most tokens of one call of a graph, unless a passage is longer: values of a layer then stay in the CPU's cache."""


class ExportFacts(TypedDict):
    """The content of EXPORT_FILE; `settings`: of the checkpoint; `files`: the hashes of the other files."""

    format: Literal["onnx", "openvino"]
    precision: Literal["float32", "int8"]
    checkpoint: str
    pooling: str
    template: str
    max_length: Annotated[int, Meta(ge=1)]
    max_doc_tokens: Annotated[int, Meta(ge=1)]
    settings: Recorded
    files: Record


class ExportedCrossEncoder:
    """An exported graph with the scoring methods of `CrossEncoder`; it runs on the CPU."""

    is_padded = False

    def __init__(self, facts: ExportFacts, graph: Graph, tokenizer: "PreTrainedTokenizerBase") -> None:
        self.settings, self.tokenizer = facts["settings"], tokenizer
        self.precision: str = facts["precision"]
        self.pooling, self.template = facts["pooling"], facts["template"]
        self.max_length, self.max_doc_tokens = facts["max_length"], facts["max_doc_tokens"]
        self.cut = recorded_cut(self.settings)
        self.first_stage_weight: float = self.settings.get("first_stage_weight", 0.0)
        self._graph = graph

    def __call__(self, inputs: Packed) -> Tensor:
        scores = np.empty(len(inputs.offsets) - 1, dtype=np.float32)
        for numbers, rows in _rows_of(inputs):
            scores[numbers] = self._graph(rows)
        return torch.from_numpy(scores)

    def pool(self, passage_scores: Tensor, documents: Tensor) -> Tensor:
        return POOLINGS[self.pooling](passage_scores, documents)

    def eval(self) -> "ExportedCrossEncoder":
        return self

    def place(self, device: torch.device, autocast: Autocast, chosen: bool = False) -> list[str]:
        return []


def write_export(target: Path, name: str, model: CrossEncoder, form: str, int8: bool) -> None:
    """Exports a model that is on the CPU into a new folder; `name` is its checkpoint, `form` a key of WRITERS.

    Raises UserError for a model that cannot be exported, and if the scores of a float32 graph differ from the model's.
    """
    target.mkdir()
    model.encoder.config.save_pretrained(target)
    model.tokenizer.save_pretrained(target)
    # The tracers take a dimension of size 1 for a constant.
    ids = np.arange(2 * 7, dtype=np.int64).reshape(2, 7) % 5 + 1
    inputs: Rows = {"input_ids": ids}
    if open_template(model.tokenizer, model.template).token_types is not None:
        inputs["token_type_ids"] = np.zeros_like(ids)
    with quiet_transformers(), _traceable(name, model) as module:
        try:
            WRITERS[form](module, inputs, target, int8)
            if not int8:
                _check_scores(OPENERS[form](target, int8), module, model, inputs)
        except (RuntimeError, TypeError, ValueError) as error:  # the tracers and NNCF raise these
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise UserError(
                f"{name}: a {type(model.encoder).__name__} cannot be exported to {form}: {reason}"
            ) from error
    facts: ExportFacts = {
        "format": form,  # type: ignore[typeddict-item]  # a key of WRITERS
        "precision": "int8" if int8 else "float32",
        "checkpoint": name,
        "pooling": model.pooling,
        "template": model.template,
        "max_length": model.max_length,
        "max_doc_tokens": model.max_doc_tokens,
        "settings": {
            **model.settings,
            "passage_tokens": model.cut.tokens,
            "passage_overlap": model.cut.overlap,
        },
        "files": record_of(target, sorted(target.iterdir())),
    }
    (target / EXPORT_FILE).write_text(json.dumps(facts, indent=1), encoding="utf-8")


def _check_scores(graph: Graph, module: nn.Module, model: CrossEncoder, inputs: Rows) -> None:
    """Raises ValueError if graph and model give different scores for rows of other shapes than the traced ones."""
    vocabulary = model.encoder.config.vocab_size
    random = np.random.default_rng(0)
    for passages, length in ((1, min(model.max_length, 160)), (3, 9)):
        ids = random.integers(0, vocabulary, (passages, length))
        rows = {column: ids if column == "input_ids" else np.zeros_like(ids) for column in inputs}
        expected = module(*map(torch.from_numpy, rows.values())).numpy()
        difference = float(np.abs(graph(rows) - expected).max())
        if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
            raise ValueError(f"its scores differ by {difference:.1g}; take another --format")


def is_export(name: str) -> bool:
    return (Path(name) / EXPORT_FILE).is_file()


def open_export(name: str, template: str) -> ExportedCrossEncoder:
    """Opens a folder that `write_export` wrote.

    Raises UserError for a damaged file, a missing package, an unknown pooling, and a template that differs.
    """
    folder, remedy = Path(name), "export the checkpoint again"
    check_inside(folder)
    facts = read_json(folder / EXPORT_FILE, ExportFacts, remedy)
    if damage := next(changes(folder, facts["files"]), None):
        raise UserError(f"{folder}: {damage}; {remedy}")
    if template and template != facts["template"]:
        own = f"with the template {facts['template']!r}" if facts["template"] else "without a template"
        raise UserError(f"{name}: was exported {own}, not with {template!r}; leave --encoder.template out")
    expect_pooling(name, facts["pooling"])
    read_configs(folder)
    check_sizes(folder, name)
    import transformers

    tokenizer = from_folder(transformers.AutoTokenizer, folder, name)
    graph = OPENERS[facts["format"]](folder, facts["precision"] == "int8")
    return ExportedCrossEncoder(facts, graph, tokenizer)


class RowScores(nn.Module):
    """(passages,) scores of (passages, tokens) ids and, for some encoders, token types; all passages of one length."""

    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        positions = torch.arange(input_ids.shape[1])[None].expand(input_ids.shape) + self.model.first_position
        arguments = {"input_ids": input_ids, "position_ids": positions}
        if token_type_ids is not None:
            arguments["token_type_ids"] = token_type_ids
        return self.model.row_scores(**arguments)


@contextmanager
def _traceable(name: str, model: CrossEncoder) -> Iterator[RowScores]:
    """Yields the model as a module whose operations do not depend on the number or length of passages."""
    from transformers import AttentionInterface, AttentionMaskInterface

    kind = type(model.encoder).__name__
    if model.last_token is not None:
        raise UserError(f"{name}: a {kind} is a decoder, which cannot be exported; expected an encoder such as BERT")
    if model.is_padded:
        raise UserError(
            f"{name}: a {kind} cannot be exported: {model.padding_reason}; expected an encoder such as BERT, RoBERTa, "
            "ELECTRA, DistilBERT, ModernBERT or XLM-RoBERTa"
        )
    AttentionInterface.register(IMPLEMENTATION, _attend_rows)
    AttentionMaskInterface.register(IMPLEMENTATION, lambda *_, **__: None)
    before = model.encoder.config._attn_implementation
    hook = first_token_part(layers_of(model.encoder)[-1]).register_forward_hook(_first_tokens)
    model.encoder.set_attn_implementation(IMPLEMENTATION)
    try:
        with torch.no_grad(), warnings.catch_warnings(), evaluating(model):
            warnings.simplefilter("ignore")  # the tracers warn of every constant
            yield RowScores(model).eval()
    finally:
        hook.remove()
        model.encoder.set_attn_implementation(before)


def _attend_rows(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, None]:
    mask, window = None, settings.get("sliding_window")
    if window is not None:  # a mask at any length
        positions = torch.arange(query.shape[2])
        mask = (positions[:, None] - positions).abs() < window
    attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=settings.get("scaling"))
    return attended.transpose(1, 2).contiguous(), None


def _first_tokens(
    module: nn.Module, arguments: object, output: Tensor | tuple[Tensor, ...]
) -> Tensor | tuple[Tensor, ...]:
    return (output[0][:, :1], *output[1:]) if isinstance(output, tuple) else output[:, :1]


def _rows_of(inputs: Packed) -> Iterator[tuple[np.ndarray, Rows]]:
    """Passages in groups of equal length, of at most TOKENS_PER_CALL: their numbers, (passages,), and the inputs."""
    offsets = inputs.offsets.cpu().numpy()
    columns = {"input_ids": inputs.input_ids.cpu().numpy()}
    if inputs.token_types is not None:
        columns["token_type_ids"] = inputs.token_types.cpu().numpy()
    lengths = np.diff(offsets)
    for length in np.unique(lengths).tolist():
        alike = np.flatnonzero(lengths == length)
        size = max(1, TOKENS_PER_CALL // length)
        for first in range(0, len(alike), size):
            numbers = alike[first : first + size]
            places = offsets[numbers, None] + np.arange(length)
            yield numbers, {name: values[places] for name, values in columns.items()}
