"""The files of tokenised documents: see `rerank.data.tokens.TokenStore`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from sys import intern

import numpy as np

from rerank.data.arrays import map_array, map_bytes, release, slices_of
from rerank.data.id_table import read_id_table
from rerank.utils.errors import UserError
from rerank.utils.integrity import RECORD, changes_since_record
from rerank.utils.json_files import parse_json

TOKENS, OFFSETS, LENGTHS = "tokens.bin", "offsets.npy", "lengths.npy"
FEW = 2**17
"""The ids of so many documents are a dict: it is faster than a table, and takes 20 MB at most."""
IDS_BEFORE = "doc_ids.json"
"""The ids of a store of version 0.1.0, which may have no record."""


def read_token_files(
    folder: Path, with_tokens: bool = True, vocabulary: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Mapping[str, int]]:
    """The tokens, the offsets and the lengths, memory-mapped, and the row of each document id.

    Without tokens, these are empty. Raises UserError if a file is missing or differs from its record, does not belong
    to the others, or has a token that the vocabulary does not have; a folder of an older version has no record.
    """
    before = (folder / IDS_BEFORE).exists()
    if not before and not (folder / RECORD).exists():
        raise _unreadable(folder, f"{RECORD}: expected a file, found none")
    if changed := changes_since_record(folder):
        raise _unreadable(folder, "; ".join(changed))
    try:
        offsets, lengths = (map_array(folder / name, (np.int64,), 1) for name in (OFFSETS, LENGTHS))
        rows: Mapping[str, int] = _rows_before(folder) if before else read_id_table(folder)
        if len(rows) <= FEW:
            rows = _as_dict(rows)
        tokens = map_bytes(folder / TOKENS, np.int32) if with_tokens else np.zeros(0, np.int32)
        if not len(rows) == len(lengths) == len(offsets) - 1:
            raise ValueError("its files are not of the same documents")
        _check_offsets(offsets, lengths)
        if with_tokens and len(tokens) != offsets[-1]:
            raise ValueError(f"{TOKENS} has {len(tokens)} tokens, expected {offsets[-1]}")
        if vocabulary:
            _check_tokens(tokens, vocabulary)
    except (OSError, ValueError) as error:
        raise _unreadable(folder, f"{error}") from error
    return tokens, offsets, lengths, rows


def _check_offsets(offsets: np.ndarray, lengths: np.ndarray) -> None:
    rises = offsets[0] == 0
    for some in slices_of(len(lengths)):
        kept = np.diff(offsets[some.start : some.stop + 1])
        rises = rises and not ((kept < 0).any() or (kept > lengths[some]).any())
    if not rises:
        raise ValueError(f"{OFFSETS} does not rise from 0 by the lengths of the documents")
    release(offsets)
    release(lengths)


def _check_tokens(tokens: np.ndarray, vocabulary: int) -> None:
    for some in slices_of(len(tokens)):
        if not 0 <= tokens[some].min() <= tokens[some].max() < vocabulary:
            raise ValueError(f"{TOKENS} has tokens that the tokenizer does not have")
        release(tokens)


def _rows_before(folder: Path) -> dict[str, int]:
    doc_ids = parse_json((folder / IDS_BEFORE).read_bytes(), list[str])
    rows = _as_dict(doc_ids)
    if len(rows) != len(doc_ids):
        raise ValueError("its files are not of the same documents")
    return rows


def _as_dict(doc_ids: Iterable[str]) -> dict[str, int]:
    return {intern(doc_id): row for row, doc_id in enumerate(doc_ids)}


def _unreadable(folder: Path, why: str) -> UserError:
    return UserError(f"{folder}: the tokenised documents cannot be read ({why}); remove the folder and run again")
