"""Collections: an ir_datasets id or a folder in BEIR's layout gives queries, qrels and document texts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rerank.data import beir, irds
from rerank.data.trec import read_qrels
from rerank.types import Qrels
from rerank.utils.files import short_hash


@dataclass(frozen=True)
class Collection:
    """Queries, judgments and documents; the documents are only read when they are asked for.

    `name` can name a folder; `source` is what the user wrote. `queries` maps query_id to text: the title, for TREC
    topics. `official_folds` are the names and query ids of the folds that the collection comes with, or ().
    `fingerprint` stands for the texts of the documents: caches that are made from them are named by it.

    `documents()` gives every document id and text, and `count()` about how many they are, 0 where nobody knows;
    `has_documents` is False where they are not on this machine and cannot be downloaded. `texts(doc_ids)` gives the
    texts of some, in the order asked. Both raise UserError where the documents cannot be had, or one of them is
    missing. `titled(doc_ids)` gives their titles and bodies apart, which are the same text; the title is "" where
    there is none. `read_raw(doc_id, raw)` makes the same text of a document as a Lucene index stores it, and
    `split_raw` the title and the body.
    """

    name: str
    source: str
    queries: dict[str, str]
    qrels: Qrels
    official_folds: tuple[tuple[str, tuple[str, ...]], ...]
    fingerprint: str
    has_documents: bool
    count: Callable[[], int]
    documents: Callable[[], Iterator[tuple[str, str]]]
    texts: Callable[[Sequence[str]], Iterator[str]]
    titled: Callable[[Sequence[str]], Iterator[tuple[str, str]]]
    read_raw: Callable[[str, str], str]
    split_raw: Callable[[str, str], tuple[str, str]]


def open_collection(source: str) -> Collection:
    """Opens a collection: a folder in BEIR's layout, or else an ir_datasets id.

    Reads, and for an ir_datasets id downloads, the queries and the qrels, but not the documents. Raises UserError
    where there is neither such a folder nor such an id, where one of queries, qrels and documents is not part of it,
    where a line is malformed, and where a download fails.
    """
    folder = Path(source)
    if folder.is_dir():
        beir.check_layout(folder)
        qrels = read_qrels(folder / beir.QRELS)
        return replace(open_documents(source), queries=beir.read_queries(folder, qrels), qrels=qrels)
    irds.check_id(source)
    return replace(
        open_documents(source),
        queries=irds.read_queries(source),
        qrels=irds.read_qrels(source),
        official_folds=irds.official_folds(source),
    )


def open_documents(source: str) -> Collection:
    """The documents of a collection alone: its queries, judgments and folds are empty, and are not read.

    A folder needs no other file than corpus.jsonl. Raises UserError as `open_collection`.
    """
    folder = Path(source)
    return _documents_of_folder(folder, source) if folder.is_dir() else _documents_of_dataset(source)


def _documents_of_folder(folder: Path, source: str) -> Collection:
    beir.check_layout(folder, [beir.CORPUS])
    return Collection(
        name=folder.resolve().name,
        source=source,
        queries={},
        qrels={},
        official_folds=(),
        fingerprint=short_hash("beir", beir.checksum(folder)),
        has_documents=True,
        count=lambda: beir.count_documents(folder),
        documents=lambda: beir.read_documents(folder),
        texts=lambda doc_ids: beir.read_texts(folder, doc_ids),
        titled=lambda doc_ids: beir.read_titled(folder, doc_ids),
        read_raw=irds.read_json,
        split_raw=lambda doc_id, raw: ("", irds.read_json(doc_id, raw)),
    )


def _documents_of_dataset(source: str) -> Collection:
    irds.check_id(source, documents_only=True)
    return Collection(
        name=source.replace("/", "-"),
        source=source,
        queries={},
        qrels={},
        official_folds=(),
        fingerprint=irds.documents_id(source),
        has_documents=irds.has_documents(source),
        count=lambda: irds.count_documents(source),
        documents=lambda: irds.read_documents(source),
        texts=lambda doc_ids: irds.read_texts(source, doc_ids),
        titled=lambda doc_ids: irds.read_titled(source, doc_ids),
        read_raw=lambda doc_id, raw: irds.read_raw(source, doc_id, raw),
        split_raw=lambda doc_id, raw: irds.split_raw(source, doc_id, raw),
    )
