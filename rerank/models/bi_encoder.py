"""A bi-encoder, which reads queries and documents apart: sentence-transformers opens it and computes its vectors."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rerank.batches.batch import Packed
from rerank.data.splitting import OffsetTokenizer, equal_passages, open_offset_tokenizer
from rerank.models.encoder import positions
from rerank.models.encoder_inputs import packed, padded
from rerank.models.fused import kernel_error, use_kernels
from rerank.models.gpu import AUTOCAST, FARTHEST, Precision, choose_precision, has_flash_attention, usable_device
from rerank.models.hub import CheckpointConfig, bi_encoder_hash, encoder_folder, quiet_transformers
from rerank.models.packed_attention import IMPLEMENTATION, UnsupportedAttentionError, register_attention
from rerank.models.packing import PROBE_LENGTHS, TOLERANCE, probe_passages, relative_difference
from rerank.models.products import SMALL, take_faster_products
from rerank.utils.errors import UserError
from rerank.utils.json_files import read_json
from rerank.utils.progress import log

MODULES_FILE = "modules.json"
TOKENS_AT_ONCE = {"cpu": 2**12, "cuda": 2**15}
"""Tokens of a forward pass, padding included: 16 and 128 passages of 256 tokens."""

TAKEN = {"input_ids", "attention_mask", "token_type_ids", "return_dict"}  # by a forward pass without padding

HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
"""How the architectures end whose models do not compare vectors."""
EXPECTED = "expected a bi-encoder; choose one such as sentence-transformers/all-MiniLM-L6-v2"


@dataclass(frozen=True)
class BiEncoder:
    """A bi-encoder on its device; `BiEncoder.load` opens one.

    `max_tokens` is the longest text that it reads, and `tokenizer` says where a passage may begin; both are None if no
    text is cut.
    """

    name: str
    model: Any = field(repr=False)
    max_tokens: int | None
    tokenizer: OffsetTokenizer | None = field(repr=False)

    @classmethod
    def load(
        cls, name_or_folder: str | Path, *, device: str | torch.device | None = None, precision: Precision = "auto"
    ) -> "BiEncoder":
        """Opens the bi-encoder in a folder, or of a name on huggingface.co, as sentence-transformers does.

        Its own files state pooling, normalisation, prompts and similarity. A folder without them, as of a plain
        encoder, gets the mean of the tokens' vectors and the cosine, which is logged. `device` and `precision` are as
        in `Reranker.load`. Raises UserError if it cannot be found or opened, or is a cross-encoder.
        """
        from sentence_transformers import SentenceTransformer

        name = str(name_or_folder)
        _expect_bi_encoder(name)
        model = open_model(SentenceTransformer, name, str(usable_device(device)), precision)
        if not (encoder_folder(name) / MODULES_FILE).is_file():
            log.info(f"encoder {name}: has no {MODULES_FILE}, so its vectors are the mean of its tokens', by cosine")
        return with_tokenizer(name, model, model.max_seq_length)

    @functools.cached_property
    def hash(self) -> str:
        """A hash of its files: all are read once."""
        return bi_encoder_hash(self.name)

    @property
    def compares(self) -> str:
        """The name of its similarity, such as "cosine" or "dot"."""
        return str(self.model.similarity_fn_name)

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """(queries, dimensions) vectors. Raises UserError for a vector that is not finite."""
        vectors: np.ndarray = self.model.encode_query(list(queries), **self._settings())
        if not np.isfinite(vectors).all():
            raise UserError(
                f"encoder {self.name}: gives a query a vector with NaN or infinity, expected numbers; choose another"
            )
        return vectors

    def encode_documents(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(passages, dimensions) vectors of the passages of all texts, and the number of passages of each text."""
        passages = [self.split(text) for text in texts]
        flat = [passage for some in passages for passage in some]
        if not flat:
            return np.zeros((0, 1), np.float32), np.zeros(0, np.int64)
        vectors = self.model.encode_document(flat, **self._settings())
        return vectors, np.array([len(some) for some in passages], np.int64)

    def split(self, text: str) -> list[str]:
        """The text in passages of about equal length that the encoder reads whole."""
        if self.tokenizer is None or self.max_tokens is None:
            return [text]
        return equal_passages(text, self.tokenizer, self.max_tokens)

    def _settings(self) -> dict[str, Any]:
        tokens = TOKENS_AT_ONCE.get(self.model.device.type, TOKENS_AT_ONCE["cpu"])
        size = max(1, tokens // (self.model.max_seq_length or tokens))
        return {"batch_size": size, "show_progress_bar": False, "convert_to_numpy": True}


def with_tokenizer(name: str, model: Any, limit: int | None) -> BiEncoder:
    """The model of sentence-transformers, which reads `limit` tokens of a document with its prompt, None for any."""
    if limit is None or limit == float("inf"):
        return BiEncoder(name, model, None, None)
    tokenizer = model.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        raise UserError(f"encoder {name}: its tokenizer does not say where tokens begin; expected a tokenizer.json")
    around = len(tokenizer(model.prompts.get("document") or "")["input_ids"])
    return BiEncoder(name, model, limit - around, open_offset_tokenizer(tokenizer.backend_tokenizer.to_str()))


def stated_kinds(name: str) -> tuple[str, list[str]]:
    """The type that sentence-transformers has written into a model's files, or "", and its architectures."""
    folder = encoder_folder(name)
    file, config = folder / "config_sentence_transformers.json", folder / "config.json"
    stated = read_json(file, dict[str, Any], EXPECTED).get("model_type") if file.is_file() else ""
    return stated or "", read_json(config, CheckpointConfig, EXPECTED).get("architectures") or []


def _expect_bi_encoder(name: str) -> None:
    """Raises UserError if the files say that the model is something else, such as a cross-encoder."""
    stated, architectures = stated_kinds(name)
    if stated not in ("", "SentenceTransformer"):
        raise UserError(f"encoder {name}: is a {stated}; {EXPECTED}")
    heads = [kind for kind in architectures if kind.endswith(HEADS)]
    if heads and not (encoder_folder(name) / MODULES_FILE).is_file():
        raise UserError(f"encoder {name}: is a {heads[0]}, which compares no vectors; {EXPECTED}")


def open_model(kind: Any, name: str, device: str, precision: Precision) -> Any:
    """Opens a model of this class of sentence-transformers. Raises UserError if it cannot be opened."""
    folder = encoder_folder(name)
    settings: dict[str, Any] = {"device": device, "local_files_only": True, "trust_remote_code": False}
    try:
        with quiet_transformers():
            model = kind(str(folder), **settings, model_kwargs={"dtype": torch.float32}).eval()
    except Exception as error:  # transformers, safetensors, json and modules of all kinds raise different types
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"encoder {name}: sentence-transformers cannot open {folder}: {reason[:300]}; download or save it again, "
            "or choose another"
        ) from error
    if model.device.type in TOKENS_AT_ONCE:
        _quicken(model, precision)
    return model


def _quicken(model: Any, precision: Precision) -> None:
    """Makes the encoder of a model on a CPU or a CUDA GPU compute in `precision`, and leave padding out.

    "auto" is half precision where the device multiplies it faster, for an encoder that is not SMALL and whose vectors
    stay the same but for rounding. In it, sums of residuals, layer norms and pooling are float32 (on a GPU the sums of
    BERT's layout are rounded once: see `rerank.models.triton_kernels`). On a GPU an encoder in float32 stays as it is.
    Raises UserError for a precision that the device does not have.
    """
    from transformers import PreTrainedModel

    device: torch.device = model.device
    half = AUTOCAST.get(choose_precision(precision, device, "precision"))
    body: Any = next((module for module in model.modules() if isinstance(module, PreTrainedModel)), None)
    if body is not None and (device.type == "cpu" or half):
        expected = _vectors(body, body.forward)
        if device.type == "cuda" and not kernel_error(device):
            use_kernels(body)
        forward = _without_padding(body, expected)
        if half and (precision != "auto" or _gains(body, forward, expected, half)):
            body.forward = _in_half(body, forward, half)
        elif device.type == "cpu":
            take_faster_products(body)
            body.forward = forward
    for module in model.modules() if device.type == "cpu" else ():
        if type(module) is torch.nn.Linear:  # as a product reads it in memory: a short query takes a fifth less time
            module.weight.data = module.weight.data.t().contiguous().t()


def _without_padding(body: Any, expected: Tensor) -> Callable[..., Any]:
    """The forward pass of a Hugging Face encoder for the real tokens alone; with other arguments than TAKEN its own.

    The output has the same last_hidden_state, (texts, tokens, hidden), but 0 on padding. An encoder whose `_vectors`
    are not as `expected`, or whose attention is its own, keeps its own forward pass.
    """
    own: Callable[..., Any] = body.forward
    flash = has_flash_attention(body.device)
    first_position, takes_positions = positions(body)[1], "position_ids" in inspect.signature(own).parameters
    if not takes_positions or not getattr(body, "_supports_attention_backend", False):
        return own

    @functools.wraps(own)
    def forward(**given: Any) -> Any:
        if not {"input_ids", "attention_mask"} <= given.keys() <= TAKEN:
            return own(**given)
        real, types = given["attention_mask"].bool(), given.get("token_type_ids")
        offsets = torch.cat([real.new_zeros(1, dtype=torch.int64), real.sum(1).cumsum(0)])
        types = None if types is None else types[real]
        inputs = Packed(given["input_ids"][real], types, offsets, torch.arange(len(real)))
        out = own(**packed(inputs, first_position, flash)[0])
        hidden = out.last_hidden_state[0]
        grid = hidden.new_zeros(*real.shape, hidden.shape[-1])
        grid[real] = hidden
        return type(out)(last_hidden_state=grid)

    attention = body.config._attn_implementation
    register_attention()
    body.set_attn_implementation(IMPLEMENTATION)
    with contextlib.suppress(UnsupportedAttentionError):
        if relative_difference(expected, _vectors(body, forward)) <= TOLERANCE:
            return forward
    body.set_attn_implementation(attention)
    return own


def _gains(body: Any, forward: Callable[..., Any], expected: Tensor, half: torch.dtype) -> bool:
    """Whether a model is large enough to gain from a type, and its vectors are those in float32 but for rounding."""
    if sum(weight.numel() for weight in body.parameters()) < SMALL:
        return False
    with torch.autocast(body.device.type, half):
        return relative_difference(expected, _vectors(body, forward)) <= FARTHEST


def _in_half(body: Any, forward: Callable[..., Any], half: torch.dtype) -> Callable[..., Any]:
    """The forward pass within autocast, with the linear layers' weights in its type, so that no call casts them."""
    for module in body.modules():
        if type(module) is torch.nn.Linear:
            module.to(half)

    @functools.wraps(forward)
    def in_half(*arguments: Any, **others: Any) -> Any:
        with torch.autocast(body.device.type, half):
            out = forward(*arguments, **others)
        out.last_hidden_state = out.last_hidden_state.float()
        return out

    return in_half


@torch.inference_mode()
def _vectors(body: Any, forward: Callable[..., Any]) -> Tensor:
    """(tokens, hidden) vectors of a few texts, which are padded."""
    vocab_size, pad_id = body.get_input_embeddings().num_embeddings, body.config.get_text_config().pad_token_id or 0
    passages = probe_passages(pad_id, vocab_size, positions(body)[0], PROBE_LENGTHS)
    inputs, _ = padded(passages.to(body.device), pad_id)
    vectors: Tensor = forward(**inputs).last_hidden_state[inputs["attention_mask"].bool()].float()
    return vectors
