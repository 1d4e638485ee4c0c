"""The store of a fold: its text files, parsed once into arrays that are memory-mapped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from rerank.data.letor.feature_set import FeatureSet
from rerank.data.letor.line_errors import LINE
from rerank.data.letor.store_writer import FeatureZeroError, side_file, write_documents
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, file_hash, short_hash
from rerank.utils.integrity import changes_since_record, write_record
from rerank.utils.json_files import read_json
from rerank.utils.locks import locked

FORMAT = 2
"""Changes when the files of a store change."""


class Facts(TypedDict):
    """facts.json of a store.

    query_ids: of each part in turn; width: features of a document; id_bytes: bytes of the longest document id, 0 if
    no document has one; stamp: name, size and time of each text file; checksums: their SHA-256.
    """

    query_ids: dict[str, list[str]]
    width: int
    id_bytes: int
    stamp: list[tuple[str, int, int]]
    checksums: dict[str, str]


class Store(NamedTuple):
    """The queries of all files of a fold, the query ids of each part, and the SHA-256 of each file by name."""

    features: FeatureSet
    query_ids: dict[str, tuple[str, ...]]
    checksums: dict[str, str]


def open_store(files: Mapping[str, Path], cache: Path) -> Store:
    """The store of a fold's files, by part, under `cache`; parses them if they are new or have another size or time.

    Raises UserError for a file that cannot be read or is malformed, and for a damaged store.
    """
    folder = cache / f"letor-{short_hash(FORMAT, *(file.resolve() for file in files.values()))}"
    sources = [source for file in files.values() for source in (file, side_file(file)) if source.is_file()]
    with locked(cache, "features"):
        try:
            stamp = [_stamp(source) for source in sources]
            if not folder.is_dir() or _read_facts(folder)["stamp"] != stamp:
                with atomic_write(folder) as tmp:
                    tmp.mkdir()
                    written = _write(tmp, files)
                    facts = {**written, "stamp": stamp, "checksums": {file.name: file_hash(file) for file in sources}}
                    (tmp / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
                    write_record(tmp)
        except OSError as error:
            name = error.filename or ", ".join(map(str, files.values()))
            raise UserError(f"{name}: cannot be read: {error.strerror}; expected lines of `{LINE}`") from error
        return _load(folder)


def _stamp(source: Path) -> list[Any]:
    with source.open("rb"):  # fails here if it cannot be read
        return [source.name, source.stat().st_size, source.stat().st_mtime_ns]


def _write(folder: Path, files: Mapping[str, Path]) -> dict[str, Any]:
    try:
        return write_documents(folder, files)
    except FeatureZeroError:  # in one file, so the features of all files are numbered from 0
        return write_documents(folder, files, first=0)


def _load(folder: Path) -> Store:
    if changed := changes_since_record(folder):
        raise UserError(f"{folder}: the stored features have changed ({'; '.join(changed)}); {_remedy(folder)}")
    facts = _read_facts(folder)
    ids = np.memmap(folder / "doc_ids.bin", f"S{facts['id_bytes']}", "r") if facts["id_bytes"] else None
    offsets = np.fromfile(folder / "offsets.bin", np.int64)
    query_ids = {part: tuple(some) for part, some in facts["query_ids"].items()}
    features = FeatureSet(
        np.memmap(folder / "features.bin", np.float32, "r").reshape(-1, facts["width"]),
        np.memmap(folder / "labels.bin", np.int32, "r"),
        offsets[:-1],
        offsets[1:],
        tuple(query_id for some in query_ids.values() for query_id in some),
        ids,
    )
    return Store(features, query_ids, facts["checksums"])


def _read_facts(folder: Path) -> Facts:
    facts: Facts = read_json(folder / "facts.json", Facts, _remedy(folder))
    return facts


def _remedy(folder: Path) -> str:
    return f"remove {folder} and run again"
