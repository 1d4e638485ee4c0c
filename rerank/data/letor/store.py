"""The binary store of a text file with features: read once, then memory-mapped."""

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rerank.data.letor.blocks import HashedFile
from rerank.data.letor.feature_set import FeatureSet
from rerank.data.letor.line_errors import LINE
from rerank.data.letor.store_writer import VALUES_AT_A_TIME, side_file, write
from rerank.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.progress import log

FORMAT = 1
DAMAGED = "the stored features cannot be read ({}); remove the folder and run again"


class Stored(NamedTuple):
    """A text file and the folder with what it holds; rows: documents; width: the largest feature index; sha256: of the
    text file, and of its side file where there is one.
    """

    path: Path
    folder: Path
    facts: dict[str, Any]


def stored(path: Path, cache: Path) -> Stored:
    """The store of a text file under `cache`, made unless it is there; `locked` is the caller's.

    A file of the same size and time is taken for the same; one that was touched is hashed, and read again only where it
    changed. Raises UserError for a file that cannot be read or is not as it should be.
    """
    folder = cache / f"letor-{short_hash(FORMAT, path.resolve())}"
    files = [path, *([side_file(path)] if side_file(path).is_file() else [])]
    try:
        stamp = [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]
        facts = _facts(folder)
        if facts and facts["stamp"] != stamp:
            log.info(f"{path}: touched since it was read; comparing its checksum")
            if facts["checksums"] == {file.name: _sha256(file) for file in files}:
                _write_facts(folder, facts := {**facts, "stamp": stamp})
            else:
                facts = None
        if not facts:
            with contextlib.closing(HashedFile(path)) as file, atomic_write(folder) as tmp:
                tmp.mkdir()
                written = write(tmp, path, file)
                checksums = {path.name: written.pop("sha256"), **{file.name: _sha256(file) for file in files[1:]}}
                facts = {**written, "stamp": stamp, "checksums": checksums}
                _write_facts(tmp, facts)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; expected lines of `{LINE}`") from error
    return Stored(path, folder, facts)


def load(store: Stored, width: int) -> FeatureSet:
    """What is stored, with rows of `width` features, memory-mapped; raises UserError where the store is damaged."""
    folder, facts = store.folder, store.facts
    try:
        if len(facts["layout"]) > 1 or facts["layout"][0][1] < width:
            facts = _spread(folder, facts, width)
        features = np.memmap(folder / facts.get("features", "features.bin"), np.float32, "r")
        labels = np.memmap(folder / "labels.bin", np.int32, "r")
        rows, ids = np.load(folder / "offsets.npy")
        query_ids = tuple((folder / "queries.txt").read_text("utf-8").split("\n"))
        id_lines = np.memmap(folder / "doc_ids.txt", np.uint8, "r") if (folder / "doc_ids.txt").is_file() else None
        lengths = facts["rows"], len(query_ids) + 1, ids[-1]
        if lengths != (len(labels), len(rows), ids[-1] if id_lines is None else len(id_lines)):
            raise ValueError("files do not go together")
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
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: {DAMAGED.format(error)}") from error


def _spread(folder: Path, facts: dict[str, Any], width: int) -> dict[str, Any]:
    """Writes the features once more, all rows of one width: some were written before a wider one was seen."""
    name = f"features-{width}.bin"
    old = folder / facts.get("features", "features.bin")
    with old.open("rb") as source, atomic_write(folder / name) as tmp, tmp.open("wb") as out:
        for rows, narrow in facts["layout"]:
            for begin in range(0, rows, step := VALUES_AT_A_TIME // width):
                wide = np.zeros((min(step, rows - begin), width), np.float32)
                wide[:, :narrow] = np.fromfile(source, np.float32, len(wide) * narrow).reshape(len(wide), narrow)
                out.write(wide.data)
    facts = {**facts, "layout": [[facts["rows"], width]], "features": name}
    _write_facts(folder, facts)
    old.unlink()
    return facts


def _facts(folder: Path) -> dict[str, Any] | None:
    if not folder.is_dir():
        return None
    try:
        facts: dict[str, Any] = json.loads((folder / "facts.json").read_text("utf-8"))
        return facts
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: {DAMAGED.format(error)}") from error


def _write_facts(folder: Path, facts: dict[str, Any]) -> None:
    with atomic_write(folder / "facts.json") as tmp:
        tmp.write_text(json.dumps(facts) + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    with contextlib.closing(HashedFile(path)) as file:
        return file.sha256()
