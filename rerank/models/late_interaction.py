"""Late interaction: a document's score is the sum over the query's tokens of the largest similarity of its own tokens.

MaxSim: Khattab and Zaharia, "ColBERT", SIGIR 2020. Of a document's vectors only the signs are kept, after a random
rotation, which estimate products with any vector: Gao and Long, "RaBitQ", SIGMOD 2024. The vectors are those of a
bi-encoder's last layer, or of a model trained for late interaction.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rerank.models.bi_encoder import BiEncoder, open_model, stated_kinds, with_tokenizer
from rerank.models.gpu import Precision
from rerank.models.hub import quiet_transformers
from rerank.utils.errors import UserError

LEAST_BITS = 384  # of a vector: one of fewer numbers is rotated in a space of so many


def rotation_of(dimensions: int) -> np.ndarray:
    """(dimensions, bits) float32: a random rotation, always the same, which keeps products; bits / 8 is whole."""
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
    """(documents,) float32: the sum over the query's tokens of weight × the largest similarity of a document's tokens.

    query: (tokens, dimensions) float32 and weights: (tokens,) of the query; documents: the codes of each one's tokens,
    (vectors, bits / 8). A document without tokens, and a query without, gives 0.
    """
    columns, least = _columns(query, rotation)
    scores = np.zeros(len(documents), np.float32)
    for number, codes in enumerate(documents):
        if len(codes):
            scores[number] = weights @ ((np.unpackbits(codes, axis=1).astype(np.float32) @ columns).max(0) - least)
    return scores


def nearest_tokens(query: np.ndarray, codes: np.ndarray, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each token of a query the number of the most similar one of a document, and how similar: (tokens,) each."""
    columns, least = _columns(query, rotation)
    products = np.unpackbits(codes, axis=1).astype(np.float32) @ columns
    return products.argmax(0), products.max(0) - least


def _columns(query: np.ndarray, rotation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(bits, tokens) and (tokens,): a product of bits with the first, less the second, is the similarity."""
    bits = rotation.shape[1]
    rotated = math.sqrt(math.pi / 2 / bits) * (query @ rotation)  # the sign of a number times this is the number's mean
    return np.ascontiguousarray(2 * rotated.T), rotated.sum(1)  # codes are 0 and 1 for -1 and 1


WORD = re.compile(r"\w+")
MULTI_VECTOR = ("MultiVectorEncoder", "ColBERT")  # the types of such models that sentence-transformers and PyLate write


@dataclass(frozen=True)
class TokenEncoder:
    """Makes vectors of length 1 for tokens, a text at a time, so that they depend on no other text.

    If the model is trained for late interaction, `is_trained`, its projection, prompts, masks and expansion are used.
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
        """(tokens, dimensions) vectors of a query, without special tokens and prompt, and (tokens,) their pieces."""
        vectors, pieces = self._encode(self.encoder.model.encode_query, text)
        if self.is_trained:
            return vectors, pieces
        (prompt,) = self.pieces([self.encoder.model.prompts.get("query") or ""])
        words = np.flatnonzero(~np.isin(pieces, self.encoder.model.tokenizer.all_special_ids))[len(prompt) :]
        return vectors[words], pieces[words]

    def document(self, text: str) -> np.ndarray:
        """(tokens, dimensions) float32 vectors of a document, of all its passages."""
        passages = self.encoder.split(text)
        return np.concatenate([self._encode(self.encoder.model.encode_document, passage)[0] for passage in passages])

    def words(self, text: str, is_query: bool) -> list[str]:
        """The word that each vector of `query` or `document` is a part of, unless `is_trained`; "" for special ones."""
        model, tokenizer = self.encoder.model, self.encoder.model.tokenizer
        prompt, special = model.prompts.get("query" if is_query else "document") or "", set(tokenizer.all_special_ids)
        found = []
        for passage in [text] if is_query else self.encoder.split(text):
            given = prompt + passage
            words = {place: word[0] for word in WORD.finditer(given) for place in range(*word.span())}
            with quiet_transformers():
                cut = {"truncation": True, "max_length": model.max_seq_length}
                tokens = tokenizer(given, return_offsets_mapping=True, **cut)
            for piece, (_, end) in zip(tokens["input_ids"], tokens["offset_mapping"], strict=True):
                if piece not in special:
                    found.append(words.get(end - 1, "") if end > len(prompt) else "")
                elif not is_query:
                    found.append("")
        return found[len(self.pieces([prompt])[0]) :] if is_query else found

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of the word pieces of whole texts, without special tokens."""
        with quiet_transformers():
            found: list[list[int]] = self.encoder.model.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        return found

    def _encode(self, encode: Any, text: str) -> tuple[np.ndarray, np.ndarray]:
        (found,) = encode([text], output_value=None, show_progress_bar=False)
        counted = found["attention_mask"].bool()
        vectors = found["token_embeddings"][counted].float().cpu().numpy()
        if not np.isfinite(vectors).all():
            raise UserError(
                f"encoder {self.encoder.name}: gives a token a vector with NaN or infinity; expected finite numbers: "
                "choose another encoder"
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.where(lengths, lengths, 1), found["input_ids"][counted].cpu().numpy()


def is_multi_vector(name: str) -> bool:
    """Whether the files of a model say that it is trained for late interaction."""
    stated, architectures = stated_kinds(name)
    return stated in MULTI_VECTOR or "HF_ColBERT" in architectures


def open_multi_vector(name: str, device: str, precision: Precision) -> BiEncoder:
    """Opens a model that is trained for late interaction. Raises UserError if it cannot be opened."""
    from sentence_transformers import MultiVectorEncoder

    model = open_model(MultiVectorEncoder, name, device, precision)
    return with_tokenizer(name, model, model[0].document_length or model.max_seq_length)
