"""The folder of an exported cross-encoder: what it records, how it is written, and how it is opened."""

import json
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from torch import Tensor

from rerank.batches.batch import Packed
from rerank.batches.templates import open_template
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.export import onnx_format, openvino_format
from rerank.models.export.rows import Graph, Rows, RowScores, example, rows_of, traceable
from rerank.models.gpu import Autocast
from rerank.models.hub import EXPORT_FILE, quiet_transformers
from rerank.models.pooling import POOLINGS, expect_pooling
from rerank.utils.errors import UserError
from rerank.utils.integrity import Record, as_record, changes, record_of
from rerank.utils.json_files import read_json

TOLERANCE = 1e-3
"""The largest difference between the scores of a float32 graph and of the model, relative to the largest."""


FORMATS = {"onnx": onnx_format, "openvino": openvino_format}
"""Every format by the name that --format takes: a module with `check_packages`, `write` and `open_graph`."""


class ExportFacts(TypedDict):
    """EXPORT_FILE; `settings` are those that the checkpoint was saved with, `files` the hashes of the other files."""

    format: Literal["onnx", "openvino"]
    precision: Literal["float32", "int8"]
    checkpoint: str
    pooling: str
    template: str
    max_length: int
    max_doc_tokens: int
    settings: dict[str, Any]
    files: dict[str, Any]


class ExportedCrossEncoder:
    """A graph in the place of a `CrossEncoder`, for scoring: packed passages in, scores out, always on the CPU."""

    is_padded = False

    def __init__(self, facts: ExportFacts, graph: Graph) -> None:
        self.settings = facts["settings"]
        self.precision: str = facts["precision"]
        self.pooling = facts["pooling"]
        self.template = facts["template"]
        self.first_stage_weight: float = self.settings.get("first_stage_weight", 0.0)
        self._graph = graph

    def __call__(self, inputs: Packed) -> Tensor:
        """(passages,) float32 scores."""
        scores = np.empty(len(inputs.offsets) - 1, dtype=np.float32)
        for numbers, rows in rows_of(inputs):
            scores[numbers] = self._graph(rows)
        return torch.from_numpy(scores)

    def pool(self, passage_scores: Tensor, documents: Tensor) -> Tensor:
        """As `CrossEncoder.pool`."""
        return POOLINGS[self.pooling](passage_scores, documents)

    def eval(self) -> "ExportedCrossEncoder":
        """Itself: a graph has no training mode."""
        return self

    def place(self, device: torch.device, autocast: Autocast, chosen: bool = False) -> list[str]:
        """Nothing to say: a graph runs on the CPU, in the precision that it was exported in."""
        return []


def write_export(
    target: Path,
    name: str,
    model: CrossEncoder,
    tokenizer: Any,
    max_doc_tokens: int,
    form: str,
    int8: bool,
) -> None:
    """Writes the folder of a model that is on the CPU.

    `name` is the checkpoint; of a document `max_doc_tokens` are kept. Raises UserError for a model that cannot be
    exported, and for a float32 graph that gives other scores.
    """
    target.mkdir()
    model.encoder.config.save_pretrained(target)
    tokenizer.save_pretrained(target)
    inputs = example(open_template(tokenizer, model.template).token_types is not None)
    with quiet_transformers(), traceable(name, model) as module:
        try:
            FORMATS[form].write(module, inputs, target, int8)
        except (RuntimeError, TypeError, ValueError) as error:  # what the tracers and NNCF raise for operations
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise UserError(
                f"{name}: a {type(model.encoder).__name__} cannot be exported to {form}: {reason}"
            ) from error
        if not int8:
            _check_scores(name, form, module, FORMATS[form].open_graph(target, int8), model, inputs)
    facts: ExportFacts = {
        "format": form,  # type: ignore[typeddict-item]  # a key of FORMATS
        "precision": "int8" if int8 else "float32",
        "checkpoint": name,
        "pooling": model.pooling,
        "template": model.template,
        "max_length": model.max_length,
        "max_doc_tokens": max_doc_tokens,
        "settings": model.settings | {"pooling": model.pooling, "max_doc_tokens": max_doc_tokens},
        "files": record_of(target, sorted(target.iterdir())),
    }
    (target / EXPORT_FILE).write_text(json.dumps(facts, indent=1), encoding="utf-8")


def _check_scores(name: str, form: str, module: RowScores, graph: Graph, model: CrossEncoder, inputs: Rows) -> None:
    """Raises UserError if a graph gives rows of other shapes than the traced one other scores than the model."""
    vocabulary = model.encoder.config.vocab_size
    random = np.random.default_rng(0)
    for passages, length in ((1, min(model.max_length, 160)), (3, 9)):
        ids = random.integers(0, vocabulary, (passages, length))
        rows = {column: ids if column == "input_ids" else np.zeros_like(ids) for column in inputs}
        expected = module(*map(torch.from_numpy, rows.values())).numpy()
        difference = float(np.abs(graph(rows) - expected).max())
        if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
            raise UserError(
                f"{name}: a {type(model.encoder).__name__} cannot be exported to {form}: its scores differ by "
                f"{difference:.1g}; take another --format"
            )


def is_export(name: str) -> bool:
    """Whether `name` is the folder of an exported model."""
    return (Path(name) / EXPORT_FILE).is_file()


def open_export(name: str, template: str) -> tuple[ExportedCrossEncoder, Any, ExportFacts]:
    """The model of a folder that `write_export` wrote, its tokenizer and what the folder records.

    Raises UserError if a file is missing or damaged, if a package is missing, for a pooling that is not registered, and
    for another template than its own.
    """
    folder = Path(name)
    facts = _read_facts(folder)
    if template and template != facts["template"]:
        own = f"with the template {facts['template']!r}" if facts["template"] else "without a template"
        raise UserError(f"{name}: was exported {own}, not with {template!r}; leave --encoder.template out")
    expect_pooling(name, facts["pooling"])
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    graph = FORMATS[facts["format"]].open_graph(folder, facts["precision"] == "int8")
    return ExportedCrossEncoder(facts, graph), tokenizer, facts


def _read_facts(folder: Path) -> ExportFacts:
    """What the folder records, whose other files are those that were written."""
    remedy = "export the checkpoint again"
    facts: ExportFacts = read_json(folder / EXPORT_FILE, ExportFacts, remedy)
    try:
        record: Record = as_record(facts["files"])
    except ValueError as error:
        raise UserError(f"{folder / EXPORT_FILE}: {error}; {remedy}") from error
    if damage := next(changes(folder, record), None):
        raise UserError(f"{folder}: {damage}; {remedy}")
    return facts
