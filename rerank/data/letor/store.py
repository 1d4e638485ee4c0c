"""The binary store of a text file with features: read once, then memory-mapped."""

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np

from rerank.data.arrays import map_array
from rerank.data.letor.blocks import HashedFile
from rerank.data.letor.feature_set import FeatureSet
from rerank.data.letor.line_errors import LINE
from rerank.data.letor.store_writer import VALUES_AT_A_TIME, side_file, write
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.integrity import as_record, changes, facts_of, files_below, record_of
from rerank.utils.json_files import read_json
from rerank.utils.progress import log

FORMAT = 1
DAMAGED = "the stored features cannot be read ({}); remove the folder and run again"


class Facts(TypedDict):
    """facts.json; see `Store`."""

    rows: int
    width: int
    layout: list[tuple[int, int]]
    stamp: list[tuple[str, int, int]]
    checksums: dict[str, str]
    features: NotRequired[str]
    files: NotRequired[dict[str, Any]]
    hash: NotRequired[str]


class Store(NamedTuple):
    """A parsed text file: its path, the folder of its binary files, and `facts`.

    facts: rows (documents), width (the largest feature index), layout, stamp, checksums (SHA-256 of the text file and
    of its side file), files (the record of the binary files) and hash, of the others. Older versions lack these two.
    """

    path: Path
    folder: Path
    facts: dict[str, Any]


def build_store(path: Path, cache: Path, first: int = 1) -> Store:
    """The store of a text file under `cache`, built if it does not exist; the caller holds the lock of `cache`.

    The text numbers its features from `first`, 0 or 1. A file of the same size and time counts as unchanged; one that
    was touched is hashed, and parsed again only if it has changed. Raises FeatureZeroError for a feature 0 where they
    are numbered from 1, and UserError for a file that cannot be read or is malformed.
    """
    folder = cache / f"letor-{short_hash(FORMAT, path.resolve(), *([] if first else ['from 0']))}"
    files = [path, *([side_file(path)] if side_file(path).is_file() else [])]
    try:
        stamp = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]
        facts = _facts(folder)
        if facts and facts["stamp"] != stamp:
            log.info(f"{path}: touched since it was read; comparing its checksum")
            if facts["checksums"] == {file.name: _sha256(file) for file in files}:
                facts = _write_facts(folder, {**facts, "stamp": stamp})
            else:
                facts = None
        if not facts:
            with contextlib.closing(HashedFile(path)) as file, atomic_write(folder) as tmp:
                tmp.mkdir()
                written = write(tmp, path, file, first)
                checksums = {path.name: written.pop("sha256"), **{file.name: _sha256(file) for file in files[1:]}}
                record = record_of(tmp, files_below(tmp))
                facts = _write_facts(tmp, {**written, "stamp": stamp, "checksums": checksums, "files": record})
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; expected lines of `{LINE}`") from error
    return Store(path, folder, facts)


def open_store(store: Store, width: int) -> FeatureSet:
    """The stored set with rows of `width` features, memory-mapped. Raises UserError if the store is damaged."""
    folder, facts = store.folder, store.facts
    try:
        if damaged := list(changes(folder, as_record(facts["files"]))) if "files" in facts else []:
            raise ValueError("; ".join(damaged))
        if len(facts["layout"]) > 1 or facts["layout"][0][1] < width:
            facts = _widen(folder, facts, width)
        features = np.memmap(folder / facts.get("features", "features.bin"), np.float32, "r")
        labels = np.memmap(folder / "labels.bin", np.int32, "r")
        rows, ids = map_array(folder / "offsets.npy", np.int64, 2)
        query_ids = tuple((folder / "queries.txt").read_text("utf-8").split("\n"))
        id_lines = np.memmap(folder / "doc_ids.txt", np.uint8, "r") if (folder / "doc_ids.txt").is_file() else None
        lengths = facts["rows"], len(query_ids) + 1, ids[-1]
        if lengths != (len(labels), len(rows), ids[-1] if id_lines is None else len(id_lines)):
            raise ValueError("its files do not match each other")
        if rows[0] != 0 or rows[-1] != len(labels) or (np.diff(rows) < 0).any() or (np.diff(ids) < 0).any():
            raise ValueError("its offsets do not rise to the number of rows")
        return FeatureSet(
            features.reshape(facts["rows"], facts["layout"][0][1])[:, :width],
            labels,
            rows[:-1],
            rows[1:],
            query_ids,
            id_lines,
            None if id_lines is None else ids[:-1],
            None if id_lines is None else ids[1:],
        )
    except (OSError, ValueError, IndexError) as error:
        raise UserError(f"{folder}: {DAMAGED.format(error)}") from error


def _widen(folder: Path, facts: dict[str, Any], width: int) -> dict[str, Any]:
    """Writes the features again, all rows of one width: the first rows may be narrower than a later one."""
    name = f"features-{width}.bin"
    old = folder / facts.get("features", "features.bin")
    with old.open("rb") as source, atomic_write(folder / name) as tmp, tmp.open("wb") as out:
        for rows, narrow in facts["layout"]:
            for begin in range(0, rows, step := VALUES_AT_A_TIME // width):
                wide = np.zeros((min(step, rows - begin), width), np.float32)
                wide[:, :narrow] = np.fromfile(source, np.float32, len(wide) * narrow).reshape(len(wide), narrow)
                out.write(wide.data)
    record = {} if "files" not in facts else {**facts["files"], name: facts_of(folder / name)}
    record.pop(old.name, None)
    files = {"files": record} if record else {}
    facts = _write_facts(folder, {**facts, **files, "layout": [[facts["rows"], width]], "features": name})
    old.unlink()
    return facts


def _facts(folder: Path) -> dict[str, Any] | None:
    if not folder.is_dir():
        return None
    file, remedy = folder / "facts.json", f"remove {folder} and run again"
    facts: dict[str, Any] = read_json(file, Facts, remedy)
    if facts != (_with_hash(facts) if {"files", "hash"} & facts.keys() else facts):
        raise UserError(f"{file}: changed since it was written; {remedy}")
    return facts


def _write_facts(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Writes the facts, and returns them with their hash."""
    facts = _with_hash(facts)
    with atomic_write(folder / "facts.json") as tmp:
        tmp.write_text(json.dumps(facts) + "\n", encoding="utf-8")
    return facts


def _with_hash(facts: dict[str, Any]) -> dict[str, Any]:
    others = {name: fact for name, fact in facts.items() if name != "hash"}
    return {**others, "hash": short_hash(json.dumps(others, sort_keys=True))}


def _sha256(path: Path) -> str:
    with contextlib.closing(HashedFile(path)) as file:
        return file.sha256()
