"""The files of tokenised documents: see `rerank.data.tokens.TokenStore`."""

from pathlib import Path
from sys import intern

import numpy as np

from rerank.data.arrays import read_array
from rerank.utils.errors import UserError
from rerank.utils.integrity import changes_since_record
from rerank.utils.json_files import parse_json


def read_token_files(
    folder: Path, with_tokens: bool = True, vocabulary: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, int]]:
    """The tokens, memory-mapped, the offsets, the lengths, and the row of each document id.

    Without tokens, these are empty. Raises UserError if a file is missing or differs from its record, does not belong
    to the others, or has a token that the vocabulary does not have; a folder of an older version has no record.
    """
    if changed := changes_since_record(folder):
        raise _unreadable(folder, "; ".join(changed))
    try:
        offsets, lengths = (read_array(folder / f"{name}.npy", np.int64, 1) for name in ("offsets", "lengths"))
        doc_ids = parse_json((folder / "doc_ids.json").read_bytes(), list[str])
        rows = {intern(doc_id): row for row, doc_id in enumerate(doc_ids)}
        tokens = np.zeros(0, np.int32)
        if with_tokens and (folder / "tokens.bin").stat().st_size:
            tokens = np.memmap(folder / "tokens.bin", dtype=np.int32, mode="r")
        if not len(rows) == len(doc_ids) == len(lengths) == len(offsets) - 1:
            raise ValueError("its files are not of the same documents")
        kept = np.diff(offsets)
        if offsets[0] != 0 or (kept < 0).any() or (kept > lengths).any():
            raise ValueError("offsets.npy does not rise from 0 by the lengths of the documents")
        if with_tokens and len(tokens) != offsets[-1]:
            raise ValueError(f"tokens.bin has {len(tokens)} tokens, expected {offsets[-1]}")
        if vocabulary and len(tokens) and not 0 <= tokens.min() <= tokens.max() < vocabulary:
            raise ValueError("tokens.bin has tokens that the tokenizer does not have")
    except (OSError, ValueError) as error:
        raise _unreadable(folder, f"{error}") from error
    return tokens, offsets, lengths, rows


def _unreadable(folder: Path, why: str) -> UserError:
    return UserError(f"{folder}: the tokenised documents cannot be read ({why}); remove the folder and run again")
