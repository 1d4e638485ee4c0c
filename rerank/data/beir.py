"""A collection as a folder in the layout of BEIR: corpus.jsonl, queries.jsonl and qrels/test.tsv.

BEIR: Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models", 2021.
"""

import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rerank.errors import UserError
from rerank.types import Qrels
from rerank.utils.files import file_hash
from rerank.utils.progress import progress

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels/test.tsv"


def check_layout(folder: Path, needed: Sequence[str] = (CORPUS, QUERIES, QRELS)) -> None:
    """Raises UserError, with the layout that is expected, where the folder lacks one of the files needed."""
    missing = [name for name in needed if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"{folder}: no {' and no '.join(missing)}; a collection folder holds {CORPUS} (lines with _id, title, "
            f"text), {QUERIES} (lines with _id, text) and {QRELS} (query id, document id and relevance, tab-separated)"
        )


def read_queries(folder: Path, qrels: Qrels) -> dict[str, str]:
    """The texts of the queries that `qrels` judges, in the order of queries.jsonl, as BEIR's own loader takes them.

    Raises UserError for a malformed line and for a judged query that queries.jsonl lacks.
    """
    path = folder / QUERIES
    queries: dict[str, str] = {}
    for where, _, record in _records(path):
        if record["_id"] in queries:
            raise UserError(f"{where}: the query {record['_id']} stands here a second time; expected each _id once")
        queries[record["_id"]] = record["text"]
    for query_id in qrels:
        if query_id not in queries:
            raise UserError(f"{folder / QRELS}: judges query {query_id}, which {path} lacks; add it or drop its lines")
    return {query_id: text for query_id, text in queries.items() if query_id in qrels}


def read_documents(folder: Path) -> Iterator[tuple[str, str]]:
    """Every document id with its text, title first. Raises UserError for a malformed line or an id that returns."""
    seen = set()
    for where, _, record in _records(folder / CORPUS):
        if record["_id"] in seen:
            raise UserError(f"{where}: the document {record['_id']} stands here a second time; expected each _id once")
        seen.add(record["_id"])
        yield record["_id"], _text(record)


def count_documents(folder: Path) -> int:
    """The number of lines of corpus.jsonl."""
    with (folder / CORPUS).open("rb") as lines:
        return sum(1 for _ in lines)


def read_texts(folder: Path, doc_ids: Sequence[str]) -> Iterator[str]:
    """The texts of the documents, in the order asked. Raises UserError for an id that corpus.jsonl lacks."""
    return (_text(record) for record in _records_of(folder, doc_ids))


def read_titled(folder: Path, doc_ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Title ("" where there is none) and body of the documents, as `read_texts`."""
    return ((record["title"], record["text"]) for record in _records_of(folder, doc_ids))


def _records_of(folder: Path, doc_ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    path = folder / CORPUS
    offsets = _offsets(path, _stamp(path))
    for doc_id in doc_ids:
        if doc_id not in offsets:
            raise UserError(f"{path}: has no document {doc_id}; the run or the qrels come from another collection")
    with path.open("rb") as corpus:
        for doc_id in doc_ids:
            corpus.seek(offsets[doc_id])
            yield _record(corpus.readline(), f"{path}, document {doc_id}")


def checksum(folder: Path) -> str:
    """SHA-256 of corpus.jsonl, read once for as long as its size and time stay: a command opens a collection twice."""
    path = folder / CORPUS
    return _checksum(path, _stamp(path))


@functools.lru_cache(maxsize=2)
def _checksum(path: Path, _of: tuple[int, int]) -> str:
    return file_hash(path)


def _stamp(path: Path) -> tuple[int, int]:
    """What changes when a file does: its size in bytes and its time of change in nanoseconds."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@functools.lru_cache(maxsize=2)
def _offsets(path: Path, _of: tuple[int, int]) -> dict[str, int]:
    """Where the line of each document begins, in bytes."""
    offsets: dict[str, int] = {}
    for where, offset, record in progress(_records(path), count_documents(path.parent), f"indexing {path.name}"):
        if offsets.setdefault(record["_id"], offset) != offset:
            raise UserError(f"{where}: the document {record['_id']} stands here a second time; expected each _id once")
    return offsets


def _records(path: Path) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Each line's place as file:line, its offset in bytes, and its record, checked."""
    offset = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            where = f"{path}:{number}"
            if line.strip():
                yield where, offset, _record(line, where)
            offset += len(line)


def _record(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:  # a UnicodeDecodeError is one too
        raise UserError(f"{where}: not JSON ({error}); expected an object with _id and text on one line") from None
    if not isinstance(record, dict):
        raise UserError(f"{where}: expected a JSON object with _id and text, got {str(record)[:60]!r}")
    record["title"] = record.get("title") or ""  # BEIR's queries have none, and some of its corpora neither
    for key in ("_id", "text", "title"):
        if not isinstance(record.get(key), str):
            got = repr(record[key]) if key in record else "none"
            raise UserError(f"{where}: expected a text under {key!r}, got {got}")
    if record["_id"].split() != [record["_id"]]:
        raise UserError(f"{where}: the _id {record['_id']!r} is empty or holds white space, which no run file can hold")
    return record


def _text(record: dict[str, Any]) -> str:
    return f"{record['title']} {record['text']}" if record["title"] else str(record["text"])
