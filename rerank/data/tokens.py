"""The on-disk store of tokenised documents: made once for a collection and a tokenizer, then memory-mapped."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.progress import progress

DOCUMENTS_AT_A_TIME = 256


@dataclass(frozen=True)
class TokenStore:
    """Token ids of documents, cut to a number of tokens and without special tokens.

    `tokens` holds the documents one after the other, document i at `offsets[i]:offsets[i + 1]`; `lengths` are their
    lengths before the cut; `rows` finds a document's number.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    rows: dict[str, int]

    def of(self, doc_id: str) -> np.ndarray:
        """The kept token ids of a document."""
        row = self.rows[doc_id]
        return self.tokens[self.offsets[row] : self.offsets[row + 1]]

    def sha256(self) -> str:
        """Of the kept tokens and of where each document begins: of the texts, as the tokenizer reads them."""
        digest = hashlib.sha256(np.ascontiguousarray(self.offsets).data)
        digest.update(self.tokens.data)
        return digest.hexdigest()

    def statistics(self) -> dict[str, int]:
        """How many documents and tokens there are, and how many of them the cut took away."""
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
) -> TokenStore:
    """The store of these documents under `cache`; made if it is not there yet.

    `texts` gives the documents' texts in the order asked for; `fingerprint` tells one collection's texts from those of
    another.
    """
    tokenizer_identity = (
        tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else sorted(tokenizer.get_vocab().items())
    )
    folder = cache / short_hash(fingerprint, tokenizer_identity, max_doc_tokens, *doc_ids)
    if not folder.is_dir():
        _make(folder, doc_ids, texts(doc_ids), tokenizer, max_doc_tokens)
    try:
        return TokenStore(
            np.memmap(folder / "tokens.bin", dtype=np.int32, mode="r")
            if (folder / "tokens.bin").stat().st_size
            else np.zeros(0, np.int32),
            np.load(folder / "offsets.npy"),
            np.load(folder / "lengths.npy"),
            {doc_id: row for row, doc_id in enumerate(json.loads((folder / "doc_ids.json").read_text("utf-8")))},
        )
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder}: the tokenised documents cannot be read ({error}); remove the folder and run again"
        ) from error


def _make(folder: Path, doc_ids: Sequence[str], texts: Iterable[str], tokenizer: Any, max_doc_tokens: int) -> None:
    kept, lengths = [0], []
    with atomic_write(folder) as tmp:
        tmp.mkdir()
        with (tmp / "tokens.bin").open("wb") as out:
            for ids in progress(_tokenise(texts, tokenizer), len(doc_ids), "tokenising"):
                np.asarray(ids[:max_doc_tokens], dtype=np.int32).tofile(out)
                kept.append(kept[-1] + min(len(ids), max_doc_tokens))
                lengths.append(len(ids))
        np.save(tmp / "offsets.npy", np.asarray(kept, dtype=np.int64))
        np.save(tmp / "lengths.npy", np.asarray(lengths, dtype=np.int64))
        (tmp / "doc_ids.json").write_text(json.dumps(list(doc_ids)), encoding="utf-8")


def _tokenise(texts: Iterable[str], tokenizer: Any) -> Iterator[list[int]]:
    texts = iter(texts)
    while chunk := list(islice(texts, DOCUMENTS_AT_A_TIME)):
        yield from tokenise(chunk, tokenizer)


def tokenise(texts: Sequence[str], tokenizer: Any) -> list[list[int]]:
    """Token ids without special tokens and without a cut."""
    ids: list[list[int]] = tokenizer(
        list(texts),
        add_special_tokens=False,
        truncation=False,
        padding=False,
        verbose=False,
        return_attention_mask=False,
    )["input_ids"]
    return ids
