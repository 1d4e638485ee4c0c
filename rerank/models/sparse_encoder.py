"""A sparse encoder, such as SPLADE, whose vectors weigh word pieces, opened by sentence-transformers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from scipy import sparse

from rerank.data.embeddings import DOT
from rerank.models.bi_encoder import BiEncoder, open_model, stated_kinds, with_tokenizer
from rerank.models.gpu import Precision
from rerank.utils.errors import UserError

if TYPE_CHECKING:
    from sentence_transformers import SparseEncoder as Model

KIND = "SparseEncoder"
"""The model type in the files that sentence-transformers writes."""

PASSAGES_AT_ONCE = 16
"""Passages of a forward pass."""


@dataclass(frozen=True)
class SparseEncoder:
    """A sparse encoder on its device; a text becomes a vector of the weights of word pieces (Formal et al. 2021).

    `encoder` cuts documents into passages, and its `model` is the model of sentence-transformers. An inference-free
    model reads documents with a network, and takes the weights of a query's word pieces from a table.
    """

    name: str
    encoder: BiEncoder = field(repr=False)

    @property
    def hash(self) -> str:
        """A hash of all its files."""
        return self.encoder.hash

    @property
    def _model(self) -> "Model":
        return cast("Model", self.encoder.model)

    def encode_queries(self, queries: Sequence[str]) -> sparse.csr_matrix:
        """(queries, vocabulary) float32 weights."""
        with self.encoder.autocast():
            found = self._model.encode_query(list(queries), batch_size=PASSAGES_AT_ONCE, show_progress_bar=False)
        return self._to_rows(found)

    def encode_documents(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """(documents, vocabulary) float32 weights; a weight of a long document is the highest of its passages."""
        passages = [self.encoder.split(text) for text in texts]
        with self.encoder.autocast():
            flat = [passage for of_text in passages for passage in of_text]
            found = self._model.encode_document(flat, batch_size=PASSAGES_AT_ONCE, show_progress_bar=False)
        rows, end, documents = self._to_rows(found), 0, []
        for of_text in passages:
            begin, end = end, end + len(of_text)
            documents.append(rows[begin:end].max(axis=0))
        return sparse.vstack(documents, format="csr")

    def _to_rows(self, found: torch.Tensor) -> sparse.csr_matrix:
        """A sparse tensor of torch as rows of scipy, without what is not positive."""
        found = found.coalesce().cpu()
        weights, (rows, columns) = found.values().float().numpy(), found.indices().numpy()
        if not np.isfinite(weights).all():
            raise UserError(
                f"encoder {self.name}: gives a text a weight of NaN or infinity, expected numbers; choose another"
            )
        matrix = sparse.csr_matrix((weights, (rows, columns)), shape=tuple(found.shape))
        matrix.data[matrix.data < 0] = 0
        matrix.eliminate_zeros()
        matrix.sort_indices()
        return matrix


def open_sparse_encoder(name: str, device: str, precision: Precision) -> SparseEncoder:
    """Opens a sparse encoder of sentence-transformers by its folder or its name on huggingface.co.

    Raises UserError if it cannot be opened, is no sparse encoder, or compares vectors by anything but the dot product.
    """
    if stated_kinds(name)[0] != KIND:
        raise UserError(
            f"encoder {name}: is no sparse encoder that sentence-transformers saved; choose one such as naver/splade-v3"
        )
    from sentence_transformers import SparseEncoder as Model

    model, autocast = open_model(Model, name, device, precision)
    if str(model.similarity_fn_name) != DOT:
        raise UserError(f"encoder {name}: compares vectors by {model.similarity_fn_name}, expected {DOT}: take another")
    return SparseEncoder(name, with_tokenizer(name, model, autocast, model.max_seq_length))
