"""Writes tokenised documents, in bounded memory; a command that was killed goes on with the next document."""

import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from rerank.data.arrays import map_bytes, write_array
from rerank.data.id_table import make_id_table, write_id_table
from rerank.data.token_files import LENGTHS, OFFSETS, TOKENS
from rerank.utils.integrity import Record, write_record
from rerank.utils.progress import progress
from rerank.utils.resumable import put_in_place, resumable

SIZES = "sizes.bin"
"""Two int64 of each document: its tokens that are kept, and all. Removed when the store is whole."""

Tokenised = Iterable[tuple[np.ndarray, int]]
"""The int32 tokens of each document that are kept, and the number of all its tokens."""


def write_token_files(folder: Path, doc_ids: Sequence[str], tokenised: Callable[[Sequence[str]], Tokenised]) -> None:
    """Writes the files of these documents into `folder`, which must not exist; `tokenised(doc_ids)` gives their tokens.

    The name of the folder identifies the documents, their texts and the tokenizer. Raises UserError if the disk is
    full; the same call then goes on where this one was.
    """
    with resumable(folder, (TOKENS, SIZES), folder.name) as unfinished:
        left = doc_ids[unfinished.done :] if unfinished.done else doc_ids
        documents = progress(tokenised(left), len(doc_ids), "tokenising", before=unfinished.done)
        tokens, sizes = unfinished.files[TOKENS], unfinished.files[SIZES]
        for ids, length in documents:
            tokens.write(ids.tobytes())
            sizes.write(struct.pack("=qq", len(ids), length))
            unfinished.finish_item()
        unfinished.save()
        record = {TOKENS: unfinished.files[TOKENS].facts(), **_write_rest(unfinished.folder, doc_ids)}
        write_record(unfinished.folder, record)
    put_in_place(unfinished.folder, folder)
    (folder / SIZES).unlink()


def _write_rest(folder: Path, doc_ids: Sequence[str]) -> Record:
    """Writes where each document is in the tokens, and the table of ids."""
    sizes = map_bytes(folder / SIZES, np.int64).reshape(-1, 2)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes[:, 0], out=offsets[1:])
    if len(sizes) != len(doc_ids):
        raise ValueError(f"{folder}: {len(sizes)} texts of {len(doc_ids)} documents")
    table = make_id_table((doc_id, row) for row, doc_id in enumerate(doc_ids))
    return {
        OFFSETS: write_array(folder / OFFSETS, offsets),
        LENGTHS: write_array(folder / LENGTHS, sizes[:, 1]),
        **write_id_table(folder, table),
    }
