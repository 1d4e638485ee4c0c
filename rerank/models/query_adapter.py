"""A query adapter: one trained matrix for the query vectors of a bi-encoder; documents keep their vectors."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rerank.data.embeddings import COSINE
from rerank.models.bi_encoder import BiEncoder
from rerank.models.products import full_float32
from rerank.utils.errors import UserError

FILE = "adapter.safetensors"


class VectorPairs(NamedTuple):
    """The vectors of the queries of some lists, and of the passages of their documents.

    queries: (lists, dimensions) float32, of length 1 for the cosine.
    passages: (passages, dimensions) float32, of length 1 for the cosine.
    lists: (passages,) int64, the list of each passage.
    documents: (passages,) int64, the document of each passage, below `documents_in_all`.
    """

    queries: Tensor
    passages: Tensor
    lists: Tensor
    documents: Tensor
    documents_in_all: int

    def to(self, device: torch.device) -> "VectorPairs":
        moved = {name: getattr(self, name).to(device) for name in ("queries", "passages", "lists", "documents")}
        return self._replace(**moved)


class QueryAdapter(nn.Module):
    """Scores a document by scale × the largest (q + W q) · d over its passages d, for a query q.

    q and d are the bi-encoder's vectors; W, (dimensions, dimensions), is trained and initially 0, so that training
    starts from the bi-encoder's ranking. A document without passages has score 0.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.change = nn.Parameter(torch.zeros(dimensions, dimensions))
        self.scale = 1.0
        self.first_stage_weight = 0.0

    def forward(self, inputs: VectorPairs) -> Tensor:
        """(documents,) scores, computed in float32 also under autocast."""
        with torch.autocast(inputs.queries.device.type, enabled=False), full_float32():
            queries = self.scale * (inputs.queries + inputs.queries @ self.change.T)
            similarities = (queries[inputs.lists] * inputs.passages).sum(1)
        scores = similarities.new_zeros(inputs.documents_in_all)
        return scores.scatter_reduce(0, inputs.documents, similarities, "amax", include_self=False)


def standardising_scale(model: QueryAdapter, lists: Iterable[VectorPairs]) -> float:
    """The scale that gives the scores of a list a mean standard deviation of 1, as first-stage scores have."""
    with torch.no_grad():
        deviations = [float(model(pairs).std(correction=0)) for pairs in lists]
    mean = sum(deviations) / max(1, len(deviations))
    return 1 / mean if mean else 1.0


def compared(vectors: Tensor, encoder: BiEncoder) -> Tensor:
    """(…, dimensions) vectors as the encoder compares them: normalised for the cosine."""
    return nn.functional.normalize(vectors, dim=-1) if encoder.compares == COSINE else vectors


def save_adapter(model: QueryAdapter, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {"change": model.change.detach().cpu().contiguous(), "scale": torch.tensor(model.scale).double()}
    save_file(tensors, folder / FILE)


def load_adapter(folder: Path) -> QueryAdapter:
    """The adapter that `save_adapter` wrote. Raises UserError if the file is missing or damaged."""
    file = folder / FILE
    try:
        tensors = load_file(file)
        change = tensors["change"]
        if change.shape != (len(change), len(change)) or change.dtype != torch.float32:
            raise ValueError(f"expected a square matrix in float32, got {tuple(change.shape)} in {change.dtype}")
        model = QueryAdapter(len(change))
        model.change.data, model.scale = change, float(tensors["scale"])
    except Exception as error:  # safetensors and torch raise different types
        reason = str(error).partition("\n")[0]
        raise UserError(f"{file}: not the matrix of a query adapter: {reason}; fit the pipeline again") from error
    return model
