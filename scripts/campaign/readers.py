"""Every reader of files that a user gives, with a good file."""

import gzip
import io
import json
import random
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from scripts.campaign.mutations import damaged

SECONDS = 10.0
"""Of a processor, which a reader may take for a file."""
LONGEST = 10_000
"""Characters of a message."""
SHARE_DAMAGED_TWICE = 0.2

RUN = b"q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 1.5 tag\nq2 Q0 d1 1 -3e-2 tag\n"
QRELS = b"q1 0 d1 1\nq1 0 d2 0\nq2 0 d1 -1\n"
BEIR_QRELS = b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t0\n"
DOCUMENTS = b'{"_id": "d1", "title": "Wings", "text": "lift and drag"}\n{"_id": "d2", "text": "a \\u00fc b"}\n'
QUERIES = b'{"_id": "q1", "text": "lift"}\n{"_id": "q2", "text": "drag"}\n'
TOPICS = b"q1\tlift\nq2\tdrag\n"
LISTS = (
    b'{"query_id": "q1", "doc_ids": ["d1", "d2"], "labels": [1, 0]}\n'
    b'{"query": "lift", "documents": ["a", "b"], "labels": [2, 0]}\n'
)
FOLDS = b'[{"name": "1", "train": ["q1"], "valid": ["q2"], "test": ["q3"]}]'
TOML = b'[collection]\nsource = "towns"\n[training]\nepochs = 2\nlr = 1e-3\n[loss]\nname = "approx"\nalpha = 10.0\n'
GRID = b'config = "train.toml"\nfold = "1"\n[[grid]]\n"training.lr" = [1e-2, 1e-3]\n"loss.name" = ["approx"]\n'
FEATURES = b"1 qid:1 1:0.5 2:1 # d1\n0 qid:1 1:0.25 # d2\n2 qid:2 2:3 # d1\n0 qid:2 1:1 2:-1e3\n"
LIGHTGBM = b"0 1:0.5 2:1\n1 1:0.25\n2 2:3\n0 1:1\n"

_FOLDER = {"towns/corpus.jsonl": DOCUMENTS, "towns/queries.jsonl": QUERIES, "towns/qrels/test.tsv": BEIR_QRELS}


class Reader(NamedTuple):
    """The name of a file, its good content, files beside it, and the function that reads it."""

    file: str
    good: bytes
    read: Callable[[Path], Any]
    beside: Mapping[str, bytes] = MappingProxyType({})


def _documents(path: Path) -> None:
    """All documents of a folder, twice, in its order and by id, and its queries and judgments."""
    from rerank.data.collections import open_collection

    collection = open_collection(str(path if path.suffix == ".zip" else path.parent))
    ids = [document.doc_id for document in collection.documents()]
    for document in collection.get(ids):
        (document.doc_id + document.text).encode()
    for query_id, text in collection.queries.items():
        (query_id + text).encode()
    assert all(isinstance(grade, int) for grades in collection.qrels.values() for grade in grades.values())
    assert all(doc_id.split() == [doc_id] and "\0" not in doc_id for doc_id in ids)


def _settings(path: Path) -> None:
    from rerank.runs.settings import read_settings, read_toml

    read_toml(path)
    read_settings(path)


def _grid(path: Path) -> None:
    from rerank.jobs.sweep.grid import cells, read_grid
    from rerank.runs.settings import read_toml

    grid = read_grid(path)
    cells(grid, read_toml(grid.config) if grid.config else {}, str(path), ())


def _features(path: Path) -> None:
    """The first fold of the folder that the file is in."""
    from rerank.data.letor.layouts import open_fold

    open_fold(str(path.parent), "1", 3, path.parent / "cache")


def _feature_file(path: Path) -> None:
    from rerank.data.letor.layouts import open_all

    open_all(str(path), path.parent / "cache")


def _queries(path: Path) -> None:
    from rerank.data.queries import read_queries

    for query_id, text in read_queries(path).items():
        (query_id + text).encode()


def _lists(path: Path) -> None:
    from rerank.data.lists import read_training_lists

    for labels in ("judgments", "scores"):
        read_training_lists(path, {"q1": "lift"}, labels)


def _run(path: Path) -> None:
    from rerank.data.trec import read_run, write_run

    write_run(path.with_name("again"), read_run(path), "tag")


def _qrels(path: Path) -> None:
    from rerank.data.trec import read_qrels

    read_qrels(path)


def _folds(path: Path) -> None:
    from rerank.data.folds import read_folds

    read_folds(path)


def _zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _FOLDER.items():
            archive.writestr(name, content)
    return out.getvalue()


_PARTS = {
    f"letor/Fold1/{part}.txt": FEATURES.replace(b"qid:", f"qid:{number}".encode())
    for number, part in enumerate(("train", "vali", "test"))
}
READERS = {
    "a run": Reader("any.run", RUN, _run),
    "a compressed run": Reader("any.run.gz", gzip.compress(RUN, mtime=0), _run),
    "qrels": Reader("qrels.txt", QRELS, _qrels),
    "BEIR's qrels": Reader("qrels.tsv", BEIR_QRELS, _qrels),
    "a corpus": Reader("towns/corpus.jsonl", DOCUMENTS, _documents, _FOLDER),
    "queries": Reader("towns/queries.jsonl", QUERIES, _documents, _FOLDER),
    "a zip": Reader("towns.zip", _zipped(), _documents),
    "a file of queries": Reader("topics.tsv", TOPICS, _queries),
    "a JSON file of queries": Reader("topics.jsonl", QUERIES, _queries),
    "training lists": Reader("lists.jsonl", LISTS, _lists),
    "folds": Reader("folds.json", FOLDS, _folds),
    "settings": Reader("config.toml", TOML, _settings),
    "a grid": Reader("grid.toml", GRID, _grid, {"train.toml": TOML}),
    "SVMlight": Reader("features.txt", FEATURES, _feature_file),
    "LETOR's folds": Reader(
        "letor/Fold1/train.txt", _PARTS["letor/Fold1/train.txt"], lambda path: _features(path.parent), _PARTS
    ),
    "LightGBM's features": Reader("rank/rank.train", LIGHTGBM, _features, {
        "rank/rank.train.query": b"2\n2\n", "rank/rank.test": LIGHTGBM, "rank/rank.test.query": b"2\n2\n"
    }),
    "LightGBM's queries": Reader("rank/rank.train.query", b"2\n2\n", _features, {
        "rank/rank.train": LIGHTGBM, "rank/rank.test": LIGHTGBM, "rank/rank.test.query": b"2\n2\n"
    }),
}  # fmt: skip


def read_damaged(words: list[str]) -> None:
    """Reads damaged files for a reader, a seed and a number of files, and prints what is wrong as a JSON list."""
    import shutil

    name, seed, count = words
    reader, rng, found = READERS[name], random.Random(int(seed)), []
    for number in range(int(count)):
        folder = Path(f"files{number}")
        path = folder / reader.file
        for beside, content in {**reader.beside, reader.file: reader.good}.items():
            (folder / beside).parent.mkdir(parents=True, exist_ok=True)
            (folder / beside).write_bytes(content)
        content, what = damaged(reader.good, rng)
        if rng.random() < SHARE_DAMAGED_TWICE:
            content, more = damaged(content, rng)
            what = f"{what}, {more}"
        path.write_bytes(content)
        begin = time.process_time()
        if wrong := _read(reader, path):
            found.append(f"file {number}, {what}: {wrong}")
        if (seconds := time.process_time() - begin) > SECONDS:
            found.append(f"file {number}, {what}: takes {seconds:.1f} s")
        shutil.rmtree(folder)
    sys.stdout.write(json.dumps(found))


def _read(reader: Reader, path: Path) -> str:
    """What is wrong with how a file is read; "" for a value, or a UserError in one line."""
    from cyclopts import CycloptsError

    from rerank.utils.errors import UserError

    try:
        reader.read(path)
    except (UserError, CycloptsError) as error:
        text = str(error)
        if len(text) > LONGEST or "\n" in text.strip():
            return f"a message of {len(text)} characters and {len(text.splitlines())} lines: {text[:200]!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""
