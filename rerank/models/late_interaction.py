"""Late interaction: a document's score is the sum over the query's tokens of the largest similarity to its tokens.

MaxSim: Khattab and Zaharia, "ColBERT", SIGIR 2020. The vectors come from the last layer of a bi-encoder, or from a
model trained for late interaction. A document's vectors are rotated at random and reduced to their signs, which
estimate products with any vector: Gao and Long, "RaBitQ", SIGMOD 2024.
"""

import copy
import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rerank.data.embeddings import units
from rerank.models.bi_encoder import BiEncoder, open_model, stated_kinds, with_tokenizer
from rerank.models.gpu import Precision
from rerank.utils.errors import UserError
from rerank.utils.progress import quiet

LEAST_BITS = 384
"""Least bits of a code; shorter vectors are rotated in a space of this dimension, so that signs estimate well."""

GROUPS = 24
"""Clusters of a document's tokens in `groups_of_tokens`."""

ROUNDS = 10
"""Iterations of k-means in `groups_of_tokens`."""

MOST_GROUPS = 10
"""Groups of a document that are compared: those with the largest weights."""

WORD = re.compile(r"\w+")
"""A word of a text, as hits show it."""

MULTI_VECTOR = ("MultiVectorEncoder", "ColBERT")
"""The types that sentence-transformers and PyLate write into models for late interaction."""


def rotation_of(dimensions: int) -> np.ndarray:
    """(dimensions, bits) float32: a fixed random rotation, which preserves products; bits is a multiple of 8."""
    bits = -(-max(dimensions, LEAST_BITS) // 8) * 8
    square, upper = np.linalg.qr(np.random.default_rng(0).standard_normal((bits, bits)))
    rotation: np.ndarray = (square * np.sign(np.diag(upper)))[:dimensions].astype(np.float32)
    return rotation


def to_codes(vectors: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """(vectors, bits / 8) uint8: the signs of (vectors, dimensions) after the rotation."""
    return np.packbits(vectors @ rotation > 0, axis=1)


def max_similarities(
    query: np.ndarray, weights: np.ndarray, documents: Sequence[np.ndarray], rotation: np.ndarray
) -> np.ndarray:
    """(documents,) float32: the sum over the query's tokens of weight × the largest similarity to a document's tokens.

    query: (tokens, dimensions) float32; weights: (tokens,) of the query; documents: the codes of each document's
    tokens, (vectors, bits / 8). The score is 0 if document or query has no tokens.
    """
    rotated, scores = _rotated(query, rotation), np.zeros(len(documents), np.float32)
    for number, codes in enumerate(documents):
        if len(codes) and len(query):
            scores[number] = weights @ _similarities(codes, rotated).max(0)
    return scores


def nearest_tokens(query: np.ndarray, codes: np.ndarray, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each token of a query, the index of the most similar token of a document, and the similarity: (tokens,)."""
    similarities = _similarities(codes, _rotated(query, rotation))
    return similarities.argmax(0), similarities.max(0)


def groups_of_tokens(codes: np.ndarray, weights: np.ndarray, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The MOST_GROUPS heaviest topics of a document: (groups, dimensions) vectors of length 1, and (groups,) weights.

    codes: (tokens, bits / 8); weights: (tokens,), both of the document. Spherical k-means, started from tokens at equal
    distances in the text, forms GROUPS groups; a group has the mean weight of its tokens. After Wang, Macdonald,
    Tonellotto and Ounis, "Pseudo-relevance feedback for multiple representation dense retrieval", ICTIR 2021, where a
    group has the weight of the token nearest to its mean.
    """
    if not len(codes):
        return np.zeros((0, len(rotation)), np.float32), np.zeros(0, np.float32)
    tokens = units((2 * np.unpackbits(codes, axis=1).astype(np.float32) - 1) @ rotation.T)
    means = tokens[np.linspace(0, len(tokens) - 1, min(GROUPS, len(tokens))).round().astype(np.int64)]
    for _ in range(ROUNDS):
        members = np.eye(len(means), dtype=np.float32)[(tokens @ means.T).argmax(1)]  # (tokens, groups)
        sizes = members.sum(0)
        means = np.where(sizes[:, None], units(members.T @ tokens), means)
    group_weights = members.T @ weights / np.maximum(sizes, 1)
    heaviest = np.argsort(-group_weights, kind="stable")[:MOST_GROUPS]
    return means[heaviest], group_weights[heaviest]


def _rotated(query: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """(bits, tokens) float32: the rotated vectors of a query, scaled so that products with signs are unbiased."""
    rotated: np.ndarray = math.sqrt(math.pi / 2 / rotation.shape[1]) * (query @ rotation).T
    return rotated


def _similarities(codes: np.ndarray, rotated: np.ndarray) -> np.ndarray:
    """(vectors, tokens) float32 similarities of (vectors, bits / 8) codes to the tokens of a query."""
    signs = 2 * np.unpackbits(codes, axis=1).astype(np.float32) - 1
    similarities: np.ndarray = signs @ rotated
    return similarities


@dataclass(frozen=True)
class TokenEncoder:
    """Makes vectors of length 1 for tokens, one text a forward pass, so that they depend on no other text.

    `is_trained` says whether the model was trained for late interaction: its own projection, prompts, masks and query
    expansion are then used.
    """

    encoder: BiEncoder
    is_trained: bool

    @property
    def dimensions(self) -> int:
        return len(self._encode(self.encoder.model.encode_document, "a")[0][0])

    @property
    def vocabulary(self) -> int:
        return len(self.encoder.model.tokenizer)

    def query(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """(tokens, dimensions) vectors and (tokens,) word pieces of a query, without special tokens and prompt."""
        vectors, pieces = self._encode(self.encoder.model.encode_query, text)
        if self.is_trained:
            return vectors, pieces
        (prompt,) = self.pieces([self.encoder.model.prompts.get("query") or ""])
        words = np.flatnonzero(~np.isin(pieces, self.encoder.model.tokenizer.all_special_ids))[len(prompt) :]
        return vectors[words], pieces[words]

    def document(self, text: str) -> np.ndarray:
        """(tokens, dimensions) float32 vectors of all passages of a document."""
        passages = self.encoder.split(text)
        return np.concatenate([self._encode(self.encoder.model.encode_document, passage)[0] for passage in passages])

    def document_pieces(self, text: str) -> np.ndarray:
        """(tokens,) word pieces of the vectors of `document`; -1 for special tokens. Not for `is_trained` models."""
        pieces = np.concatenate([inputs["input_ids"] for _, inputs in self._inputs(text, "document")])
        return np.where(np.isin(pieces, self.encoder.model.tokenizer.all_special_ids), -1, pieces)

    def words(self, text: str, is_query: bool) -> list[str]:
        """The word of each vector of `query` or `document`; "" for special tokens. Not for `is_trained` models."""
        kind = "query" if is_query else "document"
        prompt, special = self.encoder.model.prompts.get(kind) or "", set(self.encoder.model.tokenizer.all_special_ids)
        found = []
        for given, inputs in self._inputs(text, kind):
            words = {place: word[0] for word in WORD.finditer(given) for place in range(*word.span())}
            for piece, (_, end) in zip(inputs["input_ids"], inputs["offset_mapping"], strict=True):
                if piece not in special:
                    found.append(words.get(end - 1, "") if end > len(prompt) else "")
                elif not is_query:
                    found.append("")
        return found[len(self.pieces([prompt])[0]) :] if is_query else found

    def _inputs(self, text: str, kind: str) -> Iterator[tuple[str, Mapping[str, list[Any]]]]:
        """Each passage of a text with the prompt of its kind, and the tokenizer's output for it."""
        model = self.encoder.model
        for passage in [text] if kind == "query" else self.encoder.split(text):
            given = (model.prompts.get(kind) or "") + passage
            with quiet("transformers"):
                yield given, self._cutting(given, return_offsets_mapping=True, **self._cut)

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of the word pieces of whole texts, without special tokens."""
        with quiet("transformers"):
            ids: list[list[int]] = self._whole(list(texts), add_special_tokens=False)["input_ids"]
        return ids

    @property
    def _cut(self) -> dict[str, Any]:
        return {"truncation": True, "max_length": self.encoder.model.max_seq_length}

    @functools.cached_property
    def _whole(self) -> Any:
        """A tokenizer of its own: truncation and padding of a call are the state of a tokenizer, for all threads."""
        tokenizer = copy.deepcopy(self.encoder.model.tokenizer)
        tokenizer("", add_special_tokens=False)  # sets its state before another thread has it
        return tokenizer

    @functools.cached_property
    def _cutting(self) -> Any:
        """As `_whole`, for texts that are cut."""
        tokenizer = copy.deepcopy(self.encoder.model.tokenizer)
        tokenizer("", **self._cut)
        return tokenizer

    def _encode(self, encode: Any, text: str) -> tuple[np.ndarray, np.ndarray]:
        with self.encoder.autocast():
            (found,) = encode([text], output_value=None, show_progress_bar=False)
        counted = found["attention_mask"].bool()
        vectors = found["token_embeddings"][counted].float().cpu().numpy()
        if not np.isfinite(vectors).all():
            raise UserError(
                f"encoder {self.encoder.name}: gives a token a vector with NaN or infinity; expected finite numbers: "
                "choose another encoder"
            )
        return units(vectors), found["input_ids"][counted].cpu().numpy()


def is_multi_vector(name: str) -> bool:
    """Whether the files of a model say that it was trained for late interaction."""
    stated, architectures = stated_kinds(name)
    return stated in MULTI_VECTOR or "HF_ColBERT" in architectures


def open_multi_vector(name: str, device: str, precision: Precision) -> BiEncoder:
    """Opens a model that was trained for late interaction. Raises UserError if it cannot be opened."""
    try:
        from sentence_transformers import MultiVectorEncoder
    except ImportError as error:
        raise UserError(
            f"encoder {name}: is trained for late interaction, which needs sentence-transformers 6 or newer; "
            'pip install "sentence-transformers>=6", or take a bi-encoder'
        ) from error

    model, autocast = open_model(MultiVectorEncoder, name, device, precision)
    return with_tokenizer(name, model, autocast, model[0].document_length or model.max_seq_length)
