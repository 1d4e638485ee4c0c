"""Tokenised documents: on disk, made once for a collection and a tokenizer and then memory-mapped, or in memory."""

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rerank.data.arrays import write_array
from rerank.data.pieces import PIECE, pieces
from rerank.data.token_files import read_token_files
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.integrity import write_record
from rerank.utils.locks import make_once
from rerank.utils.progress import progress

PIECES_PER_CHUNK = 256
CHARACTERS_PER_CHUNK = 2**20


@dataclass(frozen=True)
class TokenStore:
    """Token ids of documents, truncated and without special tokens; `store[doc_id]` gives those of one document.

    `tokens` is the int32 concatenation of all documents: document i is `tokens[offsets[i]:offsets[i + 1]]`. `lengths`
    are the documents' lengths before truncation; `rows` maps doc_id to i.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    rows: dict[str, int]

    def __getitem__(self, doc_id: str) -> np.ndarray:
        row = self.rows[doc_id]
        return self.tokens[self.offsets[row] : self.offsets[row + 1]]

    def sha256(self) -> str:
        """Hash of the tokens and of the document boundaries: it identifies the texts as the model sees them."""
        digest = hashlib.sha256(np.ascontiguousarray(self.offsets).data)
        digest.update(self.tokens.data)
        return digest.hexdigest()

    def statistics(self) -> dict[str, int]:
        """Counts of documents and tokens, and how many of each were truncated."""
        kept = np.diff(self.offsets)
        return {
            "documents": len(self.rows),
            "documents_cut": int((kept < self.lengths).sum()),
            "documents_empty": int((self.lengths == 0).sum()),
            "tokens": int(self.lengths.sum()),
            "tokens_cut": int((self.lengths - kept).sum()),
        }


def open_store(
    cache: Path,
    doc_ids: Sequence[str],
    texts: Callable[[Sequence[str]], Iterable[str]],
    tokenizer: Any,
    max_doc_tokens: int,
    fingerprint: str,
    lead: str = "",
) -> TokenStore:
    """Opens the memory-mapped store of these documents under `cache`, and builds it first if it does not exist.

    `texts(doc_ids)` gives the documents' texts in the order of the ids; `fingerprint` identifies the collection's
    texts. Each text is tokenised with `lead` before it. Raises UserError for a store that cannot be read.
    """
    tokenizer_identity = _json(tokenizer) or sorted(tokenizer.get_vocab().items())
    leads = [["lead", lead]] if lead else []
    folder = cache / short_hash(fingerprint, tokenizer_identity, max_doc_tokens, *leads, *doc_ids)

    def write() -> None:
        _write_store(folder, doc_ids, (lead + text for text in texts(doc_ids)), tokenizer, max_doc_tokens)

    make_once(folder, "tokens", write)
    tokens, offsets, lengths, rows = read_token_files(folder, vocabulary=len(tokenizer))
    if list(rows) != list(doc_ids):
        raise UserError(
            f"{folder}: the tokenised documents are of other ids than asked; remove the folder and run again"
        )
    return TokenStore(tokens, offsets, lengths, rows)


def make_store(
    doc_ids: Sequence[str], texts: Iterable[str], tokenizer: Any, max_doc_tokens: int, lead: str = ""
) -> TokenStore:
    """A store in memory, with the same contents as that of `open_store`; `texts` are in the order of the ids."""
    documents, lengths = [np.zeros(0, np.int32)], []
    for ids, length in _tokenise_in_chunks((lead + text for text in texts), tokenizer, max_doc_tokens):
        documents.append(ids)
        lengths.append(length)
    offsets = np.cumsum([len(tokens) for tokens in documents], dtype=np.int64)
    rows = {doc_id: row for row, doc_id in enumerate(doc_ids)}
    return TokenStore(np.concatenate(documents), offsets, np.asarray(lengths, dtype=np.int64), rows)


def _write_store(
    folder: Path, doc_ids: Sequence[str], texts: Iterable[str], tokenizer: Any, max_doc_tokens: int
) -> None:
    offsets, lengths = [0], []
    with atomic_write(folder) as tmp:
        tmp.mkdir()
        with (tmp / "tokens.bin").open("wb") as out:
            tokenised = _tokenise_in_chunks(texts, tokenizer, max_doc_tokens)
            for ids, length in progress(tokenised, len(doc_ids), "tokenising"):
                out.write(ids.tobytes())  # not ids.tofile: see `write_array`
                offsets.append(offsets[-1] + len(ids))
                lengths.append(length)
        write_array(tmp / "offsets.npy", np.asarray(offsets, dtype=np.int64))
        write_array(tmp / "lengths.npy", np.asarray(lengths, dtype=np.int64))
        (tmp / "doc_ids.json").write_text(json.dumps(list(doc_ids)), encoding="utf-8")
        write_record(tmp)


def _tokenise_in_chunks(texts: Iterable[str], tokenizer: Any, max_doc_tokens: int) -> Iterator[tuple[np.ndarray, int]]:
    """The first `max_doc_tokens` token ids of each text, and the number of all its tokens."""
    kept: list[np.ndarray] = []
    length = 0
    for chunk in _chunks(texts, functools.cache(lambda: _json(tokenizer))):
        for (_, ends), ids in zip(chunk, tokenise([piece for piece, _ in chunk], tokenizer), strict=True):
            kept.append(np.asarray(ids[: max(0, max_doc_tokens - length)], dtype=np.int32))
            length += len(ids)
            if ends:
                yield np.concatenate(kept), length
                kept, length = [], 0


def _chunks(texts: Iterable[str], tokenizer: Callable[[], str]) -> Iterator[list[tuple[str, bool]]]:
    """Pieces of the texts to tokenise together, each with whether it ends a text.

    `tokenizer` gives its JSON, which takes longer to make than a short text to tokenise, and only long texts need.
    """
    chunk: list[tuple[str, bool]] = []
    characters = 0
    for text in texts:
        left = len(text)
        for piece in pieces(text, tokenizer()) if left > PIECE else (text,):
            left -= len(piece)
            characters += len(piece)
            chunk.append((piece, left == 0))
            if len(chunk) == PIECES_PER_CHUNK or characters >= CHARACTERS_PER_CHUNK:
                yield chunk
                chunk, characters = [], 0
    if chunk:
        yield chunk


def _json(tokenizer: Any) -> str:
    """What the tokenizer does, as JSON; "" for one that is written in Python."""
    return str(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else ""


def tokenise(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Token ids of each text, without special tokens and without truncation."""
    ids: list[list[int]] = tokenizer(
        list(texts),
        add_special_tokens=False,
        truncation=False,
        padding=False,
        verbose=False,
        return_attention_mask=False,
    )["input_ids"]
    return ids
