"""Tokenised documents, in memory or on disk: tokenised once per collection and tokenizer, then memory-mapped."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np

from rerank.data.mapped import release, slices_of
from rerank.data.store import StoreWriter, open_store
from rerank.utils.files import short_hash_of
from rerank.utils.parallel import prefetch
from rerank.utils.progress import progress

TOKENS = "tokens"
"""The column of the token ids, int32, after truncation."""
LENGTH = "length"
"""The column of the number of tokens before truncation, int64."""
TEXTS_PER_CHUNK = 2048  # texts shared by the tokenizer's threads; with 256 they wait for each other
CHARACTERS_PER_CHUNK = 2**20  # bounds the memory of a chunk of long texts
BYTES_KEPT = 2**26  # bytes of tokens; the pages of a larger store are freed after reading


@dataclass(frozen=True)
class TokenStore:
    """Token ids of documents, truncated and without special tokens; `store[doc_id]` gives the ids of one document.

    `tokens` is the int32 concatenation of all documents: document i is `tokens[offsets[i]:offsets[i + 1]]`. `lengths`
    are the documents' lengths before truncation; `rows` maps doc_id to i. All arrays may be memory-mapped.
    """

    tokens: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    rows: Mapping[str, int]

    def __getitem__(self, doc_id: str) -> np.ndarray:
        row = self.rows[doc_id]
        return self.tokens[self.offsets[row] : self.offsets[row + 1]]

    def sha256(self) -> str:
        """Hash of the tokens and the document boundaries: it identifies the texts as the model sees them."""
        digest = hashlib.sha256()
        for values in (self.offsets, self.tokens):
            for items in slices_of(len(values)):
                digest.update(np.ascontiguousarray(values[items]).data)
                release(values)
        return digest.hexdigest()

    def release(self) -> None:
        """Frees the memory of the tokens that were read, if the store has more than BYTES_KEPT bytes of tokens."""
        if self.tokens.nbytes > BYTES_KEPT:
            release(self.tokens)

    def statistics(self) -> dict[str, int]:
        """Counts of documents and tokens, of empty and truncated documents, and of truncated tokens."""
        lengths, kept = self.lengths, np.diff(self.offsets)
        counts = {
            "documents": len(self.rows),
            "documents_cut": int((kept < lengths).sum()),
            "documents_empty": int((lengths == 0).sum()),
            "tokens": int(lengths.sum()),
            "tokens_cut": int(lengths.sum() - kept.sum()),
        }
        release(self.lengths)
        release(self.offsets)
        return counts


class Tokenizer(Protocol):
    """What is called of a Hugging Face tokenizer."""

    def get_vocab(self) -> dict[str, int]: ...

    def __call__(
        self,
        text: list[str],
        *,
        add_special_tokens: bool,
        padding: bool,
        truncation: bool,
        return_attention_mask: bool,
        verbose: bool,
    ) -> Mapping[str, list[list[int]]]: ...


@dataclass(frozen=True)
class Tokenisation:
    """A Hugging Face tokenizer, the tokens of a document after which it is cut, and the text before each document."""

    tokenizer: Tokenizer
    max_doc_tokens: int
    lead: str = ""


def open_token_store(
    cache: Path,
    doc_ids: Sequence[str],
    texts: Callable[[Sequence[str]], Iterable[str]],
    tokenisation: Tokenisation,
    fingerprint: str,
) -> TokenStore:
    """Opens the memory-mapped store of the documents under `cache`, and builds it first if it does not exist.

    `texts(doc_ids)` gives the texts of documents in the order of their ids; after an interrupt it is called for the
    remaining documents. `fingerprint` identifies the collection's texts. Raises UserError for a store that cannot be
    read.
    """
    tokenizer, max_doc_tokens, lead = tokenisation.tokenizer, tokenisation.max_doc_tokens, tokenisation.lead
    backend = getattr(tokenizer, "backend_tokenizer", None)  # only tokenizers of the library tokenizers have one
    json = str(backend.to_str()) if backend else ""
    tokenizer_identity = json or sorted(tokenizer.get_vocab().items())
    leads = [["lead", lead]] if lead else []
    folder = cache / short_hash_of(chain((fingerprint, tokenizer_identity, max_doc_tokens), leads, doc_ids))

    def fill(writer: StoreWriter) -> None:
        done = writer.items
        left = doc_ids[done:]
        # A thread tokenises a chunk with the tokenizer library's threads, one per core, while the next chunk is read.
        chunks = prefetch(_chunks(lead + text for text in texts(left)), partial(tokenise, tokenizer=tokenizer))
        tokenised = chain.from_iterable(tokens for _, tokens in chunks)
        documents = progress(tokenised, len(doc_ids), "tokenising", before=done)
        for doc_id, ids in zip(left, documents, strict=True):
            writer.add(doc_id, ids[:max_doc_tokens], [len(ids)])

    made = open_store(folder, "tokens", {TOKENS: np.int32, LENGTH: np.int64}, fill)
    return TokenStore(made.values[TOKENS], made.offsets(TOKENS), made.values[LENGTH], made.ids)


def make_store(doc_ids: Sequence[str], texts: Iterable[str], tokenisation: Tokenisation) -> TokenStore:
    """A store in memory with the contents that `open_token_store` would give; `texts` are in the order of the ids."""
    documents, lengths = [np.zeros(0, np.int32)], []
    for ids in tokenise_each((tokenisation.lead + text for text in texts), tokenisation.tokenizer):
        documents.append(np.asarray(ids[: tokenisation.max_doc_tokens], np.int32))
        lengths.append(len(ids))
    offsets = np.cumsum([len(tokens) for tokens in documents], dtype=np.int64)
    rows = dict(zip(doc_ids, range(len(doc_ids)), strict=True))
    return TokenStore(np.concatenate(documents), offsets, np.asarray(lengths, dtype=np.int64), rows)


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    characters = 0
    for text in texts:
        chunk.append(text)
        characters += len(text)
        if characters >= CHARACTERS_PER_CHUNK or len(chunk) >= TEXTS_PER_CHUNK:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def tokenise_each(texts: Iterable[str], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yields what `tokenise` returns, chunk by chunk, because the tokenizer's result takes several KB per text."""
    return chain.from_iterable(tokenise(chunk, tokenizer) for chunk in _chunks(texts))


def tokenise(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of each text, without special tokens and without truncation."""
    found = tokenizer(
        list(texts),
        add_special_tokens=False,
        padding=False,
        truncation=False,
        return_attention_mask=False,
        verbose=False,
    )
    return found["input_ids"]
