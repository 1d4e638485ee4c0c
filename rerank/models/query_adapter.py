"""A query adapter: a bi-encoder whose query vectors go through one trained matrix; documents keep their vectors."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from rerank.models.bi_encoder import BiEncoder, open_bi_encoder
from rerank.models.gpu import full_float32
from rerank.models.quiet import quiet_transformers
from rerank.utils.errors import UserError

COSINE: Final = "cosine"
DOT: Final = "dot"


class VectorPairs(NamedTuple):
    """The vectors of the queries of some lists, and of the passages of their documents.

    queries: (lists, dimensions); passages: (passages, dimensions), all float32 and of length 1 for the cosine;
    lists and documents: (passages,) int64, the list of each passage, and its document among the
    `documents_in_all` documents of all lists. A document may have no passage.
    """

    queries: Tensor
    passages: Tensor
    lists: Tensor
    documents: Tensor
    documents_in_all: int

    def seeded(self, document_seeds: Tensor) -> "VectorPairs":
        """The same: an adapter has no dropout."""
        return self

    def to(self, device: torch.device) -> "VectorPairs":
        """The same on another device."""
        queries, passages, lists, documents, documents_in_all = self
        return VectorPairs(
            queries.to(device), passages.to(device), lists.to(device), documents.to(device), documents_in_all
        )


class QueryAdapter(nn.Module):
    """The score of a document is scale × the largest (q + W q) · d of its passages d, for a query q.

    q and d are the bi-encoder's vectors, and W is what is trained: (dimensions, dimensions), 0 at first, so that
    training starts from the bi-encoder's own ranking. A document without a passage has a score of 0.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.change = nn.Parameter(torch.zeros(dimensions, dimensions))
        self.scale = 1.0
        self.first_stage_weight = 0.0

    def forward(self, inputs: VectorPairs) -> Tensor:
        """(documents,) float32 scores, in float32 under autocast too."""
        with torch.autocast(inputs.queries.device.type, enabled=False), full_float32():
            queries = self.scale * (inputs.queries + inputs.queries @ self.change.T)
            similarities = (queries[inputs.lists] * inputs.passages).sum(1)
        scores = similarities.new_zeros(inputs.documents_in_all)
        return scores.scatter_reduce(0, inputs.documents, similarities, "amax", include_self=False)

    def matrix(self) -> Tensor:
        """(dimensions, dimensions): scale × (1 + W), which query vectors are multiplied by."""
        return self.scale * (torch.eye(len(self.change), device=self.change.device) + self.change.detach())


def standardising_scale(model: QueryAdapter, lists: Iterable[VectorPairs]) -> float:
    """The scale with which the scores of a list have a standard deviation of 1 on average.

    The scores are then in the units of standardised first-stage scores, whatever the similarity and the encoder.
    """
    with torch.no_grad():
        deviations = [float(model(pairs).std(correction=0)) for pairs in lists]
    mean = sum(deviations) / max(1, len(deviations))
    return 1 / mean if mean else 1.0


def open_adaptable(name: str, device: str) -> BiEncoder:
    """A bi-encoder that an adapter can be trained for; raises UserError if its similarity is no product of vectors."""
    encoder = open_bi_encoder(name, device)
    if encoder.model.similarity_fn_name not in (COSINE, DOT):
        raise UserError(
            f"encoder {name}: compares vectors by {encoder.model.similarity_fn_name}; a query adapter needs "
            f"{COSINE} or {DOT}: choose another encoder"
        )
    return encoder


def compared(vectors: Tensor, encoder: BiEncoder) -> Tensor:
    """(…, dimensions) vectors as the encoder compares them: of length 1 for the cosine."""
    return nn.functional.normalize(vectors, dim=-1) if encoder.model.similarity_fn_name == COSINE else vectors


def save_adapted(encoder: BiEncoder, model: QueryAdapter, folder: Path) -> None:
    """Writes the bi-encoder with the adapter as a folder of sentence-transformers.

    A Router at its end multiplies the vectors of queries by the matrix, and leaves those of documents as they are
    (for the cosine, of length 1). The similarity is the dot product, which is the adapter's score.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Router

    matrix = model.matrix().cpu()
    dense = Dense(len(matrix), len(matrix), bias=False, activation_function=nn.Identity())
    dense.linear.weight.data = matrix
    unit: list[Any] = [Normalize()] if encoder.model.similarity_fn_name == COSINE else []
    router = Router({"query": [*unit, dense], "document": unit}, default_route="document")
    adapted = SentenceTransformer(
        modules=[*encoder.model, router],
        similarity_fn_name=DOT,
        prompts=encoder.model.prompts,
        default_prompt_name=encoder.model.default_prompt_name,
        device="cpu",
    )
    with quiet_transformers():
        adapted.save(str(folder), create_model_card=False)


def load_adapter(folder: Path) -> QueryAdapter:
    """The adapter of a folder that `save_adapted` wrote; its scale is part of its matrix."""
    adapted = open_bi_encoder(str(folder), "cpu").model
    weight = adapted[-1].sub_modules["query"][-1].linear.weight.detach()
    model = QueryAdapter(len(weight))
    model.change.data = weight - torch.eye(len(weight))
    return model
