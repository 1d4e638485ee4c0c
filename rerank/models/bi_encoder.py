"""A bi-encoder, which encodes queries and documents separately, opened by sentence-transformers."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tokenizers import Tokenizer

from rerank.data.splitting import equal_passages, open_offset_tokenizer
from rerank.models.gpu import Autocast, Precision, open_device
from rerank.models.hub import (
    SENTENCE_FILE,
    SentenceConfig,
    bi_encoder_hash,
    encoder_folder,
    quiet_transformers,
    read_configs,
)
from rerank.models.model_files import MODULES_FILE, module_folders
from rerank.models.packed_texts import pack_texts
from rerank.models.sizes import check_parameters, check_sizes
from rerank.utils.errors import UserError
from rerank.utils.json_files import read_json, shown
from rerank.utils.progress import log
from rerank.utils.texts import check_path, check_text, list_of_texts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TOKENS_AT_ONCE = {"cpu": 2**12, "cuda": 2**15}
"""Tokens of a forward pass, padding included: 16 and 128 passages of 256 tokens."""

CHARACTERS = 3
"""Characters of a token, a low estimate for most languages."""

HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
"""Suffixes of the architectures that do not compare vectors."""
EXPECTED = "expected a bi-encoder; choose one such as sentence-transformers/all-MiniLM-L6-v2"


@dataclass(frozen=True)
class BiEncoder:
    """A bi-encoder on its device; `BiEncoder.load` opens one.

    `model` is the model of sentence-transformers; its calls are made within `autocast`. `max_tokens` is the longest
    passage in tokens, and `tokenizer` says where a passage may begin; both are None if documents are not cut.

    >>> encoder = BiEncoder.load("examples/encoder", device="cpu")  # a folder, or a name on huggingface.co
    >>> vectors, passages = encoder.encode_documents(["Oslo is the capital of Norway.", "Cats sleep."])
    >>> similarities = encoder.encode_queries(["capital of norway"]) @ vectors.T
    >>> similarities.shape, passages.tolist()
    ((1, 2), [1, 1])
    """

    name: str
    model: "SentenceTransformer" = field(repr=False)
    autocast: Autocast = field(repr=False)
    max_tokens: int | None
    tokenizer: Tokenizer | None = field(repr=False)

    @classmethod
    def load(
        cls, name_or_folder: str | Path, *, device: str | torch.device | None = None, precision: Precision = "auto"
    ) -> "BiEncoder":
        """Opens a bi-encoder by its folder or by its name on huggingface.co, as sentence-transformers does.

        Its files state pooling, normalisation, prompts and similarity. A plain encoder has no such files: it gets mean
        pooling and the cosine, which is logged. `device` and `precision` are as in `Reranker.load`. Raises UserError
        if the model cannot be found or opened, or is a cross-encoder.
        """
        name, place = check_path("name_or_folder", name_or_folder), open_device(device)
        _expect_bi_encoder(name)
        from sentence_transformers import SentenceTransformer

        model, autocast = open_model(SentenceTransformer, name, str(place), precision)
        if not (encoder_folder(name) / MODULES_FILE).is_file():
            log.info(f"encoder {name}: has no {MODULES_FILE}; mean pooling and the cosine are used")
        return with_tokenizer(name, model, autocast, model.max_seq_length)

    @functools.cached_property
    def hash(self) -> str:
        """A hash of all its files."""
        return bi_encoder_hash(self.name)

    @property
    def compares(self) -> str:
        """The name of its similarity, such as "cosine" or "dot"."""
        return str(self.model.similarity_fn_name)

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """(queries, dimensions) vectors. Raises as `list_of_texts`, and UserError for a vector that is not finite."""
        queries = list_of_texts("queries", queries)
        if not queries:
            return self._no_vectors()
        with self.autocast():
            vectors: np.ndarray = self.model.encode_query(queries, **self._settings(queries))
        if not np.isfinite(vectors).all():
            raise UserError(
                f"encoder {self.name}: gives a query a vector with NaN or infinity, expected numbers; choose another"
            )
        return vectors

    def encode_documents(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(passages, dimensions) vectors of the passages of all texts, and the number of passages of each text.

        Raises as `list_of_texts`.
        """
        passages = self._split(list_of_texts("documents", texts))
        flat = [passage for of_text in passages for passage in of_text]
        if not flat:
            return self._no_vectors(), np.zeros(0, np.int64)
        with self.autocast():
            vectors = self.model.encode_document(flat, **self._settings(flat))
        return vectors, np.array([len(of_text) for of_text in passages], np.int64)

    def split(self, text: str) -> list[str]:
        """The text in passages of about equal length, each of at most `max_tokens`."""
        return self._split([check_text("document", text)])[0]

    def _no_vectors(self) -> np.ndarray:
        return np.zeros((0, _dimensions(self.model) or 1), np.float32)

    def _split(self, texts: Sequence[str]) -> list[list[str]]:
        if self.tokenizer is None or self.max_tokens is None:
            return [[text] for text in texts]
        return equal_passages(texts, self.tokenizer, self.max_tokens)

    def _settings(self, texts: Sequence[str]) -> dict[str, Any]:
        tokens = TOKENS_AT_ONCE.get(self.model.device.type, TOKENS_AT_ONCE["cpu"])
        longest = max(map(len, texts), default=0) // CHARACTERS + 1
        size = max(1, tokens // min(longest, self.model.max_seq_length or longest))
        return {"batch_size": size, "show_progress_bar": False, "convert_to_numpy": True}


def _dimensions(model: "SentenceTransformer") -> int | None:
    """The dimensions of a model's vectors; sentence-transformers 5 and 6 have different names for them."""
    newer = getattr(model, "get_embedding_dimension", None)
    found: int | None = newer() if newer else model.get_sentence_embedding_dimension()
    return found


def with_tokenizer(name: str, model: Any, autocast: Autocast, limit: int | None) -> BiEncoder:
    """Wraps a model of sentence-transformers that reads `limit` tokens of a document and its prompt; None: no limit."""
    if limit is None or limit == math.inf:
        return BiEncoder(name, model, autocast, None, None)
    if not isinstance(limit, int):
        raise UserError(
            f"encoder {name}: expected a whole number of tokens as its longest text, got {shown(limit)}; {EXPECTED}"
        )
    tokenizer = model.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise UserError(f"encoder {name}: its tokenizer reports no offsets of tokens; expected a tokenizer.json")
    around = len(tokenizer(model.prompts.get("document") or "")["input_ids"])
    if limit <= around:
        raise UserError(
            f"encoder {name}: its longest text has {limit} tokens, of which special tokens and the document prompt "
            f"take {around}: none is left for a document; {EXPECTED}"
        )
    return BiEncoder(name, model, autocast, limit - around, open_offset_tokenizer(tokenizer.backend_tokenizer.to_str()))


def stated_kinds(name: str) -> tuple[str, list[str]]:
    """The model type that sentence-transformers wrote into the files, or "", and the architectures."""
    folder = encoder_folder(name)
    file, architectures = folder / SENTENCE_FILE, read_configs(folder).get("architectures")
    stated = read_json(file, SentenceConfig, EXPECTED).get("model_type") if file.is_file() else ""
    return stated or "", architectures or []


def _expect_bi_encoder(name: str) -> None:
    """Raises UserError if the files say that the model is something else, such as a cross-encoder."""
    stated, architectures = stated_kinds(name)
    if stated not in ("", "SentenceTransformer"):
        raise UserError(f"encoder {name}: is a {stated}; {EXPECTED}")
    heads = [kind for kind in architectures if kind.endswith(HEADS)]
    if heads and not (encoder_folder(name) / MODULES_FILE).is_file():
        raise UserError(f"encoder {name}: is a {heads[0]}, which compares no vectors; {EXPECTED}")


def open_model(kind: type[Any], name: str, device: str, precision: Precision) -> tuple[Any, Autocast]:
    """Opens a model of a class (`kind`) of sentence-transformers; returns it and the autocast for its calls.

    Raises UserError if it cannot be opened, and for a precision that the device does not support.
    """
    model = load_model(kind, name, device)
    return model, pack_texts(model, precision)


def load_model(kind: type[Any], name: str, device: str) -> Any:
    """Opens a model of a class of sentence-transformers in float32, as it is; raises UserError if that fails."""
    folder = encoder_folder(name)
    for place in module_folders(folder):
        check_sizes(place, name)
        check_parameters(place, name)
    try:
        with quiet_transformers():
            model = kind(
                str(folder),
                device=device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": torch.float32},
            ).eval()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # modules of all kinds raise different types, tokenizers' panics are no Exception
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"encoder {name}: sentence-transformers cannot open {folder}: {reason[:300]}; download or save it again, "
            "or choose another"
        ) from error
    if not len(model):
        raise UserError(f"encoder {name}: its {MODULES_FILE} names no module; {EXPECTED}")
    return model
