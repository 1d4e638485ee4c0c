"""The first stage: BM25 by Pyserini (Lucene), from an index of its own, a prebuilt one, or any Lucene index.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009; Lin et al., "Pyserini", 2021.
"""

import contextlib
import dataclasses
import difflib
import functools
import io
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rerank.data.collections import Collection
from rerank.errors import UserError, nearest
from rerank.retrieval.java import java_class, java_error_in_one_line, start
from rerank.types import Run
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.progress import log, progress

PREBUILT = {"disks45/nocr": "robust04"}
"""The fingerprint of a collection -> the name of the index that Pyserini offers for download."""

DOCUMENTS_AT_ONCE = 1000
QUERIES_AT_ONCE = 20


def choose_index(setting: str, collection: Collection, cache: Path, threads: int | None = None) -> Path:
    """The Lucene index to search.

    `setting` is "own" (built under `cache` from the collection's documents, once), the name of a prebuilt index, a
    folder that holds a Lucene index, or "auto": own where the documents can be had, else the prebuilt index of the
    collection. Raises UserError where there is no such index or it cannot be had.
    """
    prebuilt = PREBUILT.get(collection.fingerprint)
    if setting == "auto":
        setting = prebuilt if prebuilt and not collection.has_documents else "own"
    if setting == "own":
        folder = cache / f"{collection.name}-{short_hash(collection.fingerprint)}"
        if not folder.exists():
            build_index(collection.documents(), folder, threads, collection.count())
        return folder
    if "/" in setting or Path(setting).is_dir():
        return _check_index(Path(setting))
    return prebuilt_index(setting)


def build_index(documents: Iterable[tuple[str, str]], folder: Path, threads: int | None = None, count: int = 0) -> None:
    """Writes a Lucene index of (doc_id, text): English stop words, Porter stems, raw documents stored, by Anserini.

    `threads` is by default the number of cores; `count` is for the progress bar. Documents without text cannot be found
    by any query: they are counted aloud. Raises UserError where Lucene cannot write all others, on a full disk for one.
    """
    empty: list[str] = []

    def with_text() -> Iterator[str]:
        for doc_id, text in progress(documents, count, "indexing"):
            if text.strip():
                yield json.dumps({"id": doc_id, "contents": text})
            else:
                empty.append(doc_id)

    with atomic_write(folder) as tmp, java_error_in_one_line(f"{folder}: Lucene cannot write it (disk full?)"):
        arguments = ["-collection", "JsonCollection", "-input", "", "-index", str(tmp.resolve()), "-storeRaw"]
        indexer = java_class("io.anserini.index.SimpleIndexer")([*arguments, "-threads", str(threads or _cores())])
        written = 0
        try:
            for batch in _batches(with_text(), DOCUMENTS_AT_ONCE):
                if indexer.addRawDocuments(batch) != len(batch):
                    raise UserError(f"{folder}: Lucene could not write all documents; is the disk full?")
                written += len(batch)
        finally:
            indexer.close()
        if not written:
            raise UserError(f"{folder}: there is no document with text to index; expected at least one")
        if not any(tmp.glob("segments_*")) or _count(tmp) != written:  # Lucene says nothing when the disk is full
            raise UserError(f"{folder}: Lucene could not write all {written} documents; is the disk full?")
    if empty:
        log.info(f"{len(empty)} documents have no text, so BM25 cannot find them: {', '.join(empty[:5])}")


def prebuilt_index(name: str) -> Path:
    """The folder of an index that Pyserini offers, downloaded on the first use into Pyserini's cache (PYSERINI_CACHE).

    Raises UserError for an unknown name and where the download fails.
    """
    util = _pyserini()
    if name not in util.TF_INDEX_INFO:
        near = difflib.get_close_matches(name, util.TF_INDEX_INFO, n=3, cutoff=0)
        raise UserError(f"index {name}: neither auto, own, a folder nor an index of Pyserini; {nearest(name, near)}")
    about = util.TF_INDEX_INFO[name]
    place = Path(util.get_cache_home()) / "indexes" / f"{about['filename'].removesuffix('.tar.gz')}.{about['md5']}"
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return Path(util.download_prebuilt_index(name, verbose=False))
    except (OSError, ValueError, AssertionError, EOFError) as error:
        raise UserError(
            f"index {name}: not at {place}, and its download failed ({type(error).__name__}); connect to the network "
            f"once, or take --first-stage.index own or a folder with a Lucene index, or --first-stage.run a TREC run"
        ) from error


def retrieve(
    index: Path, queries: dict[str, str], depth: int, k1: float = 0.9, b: float = 0.4, threads: int | None = None
) -> Run:
    """The best `depth` documents of each query by BM25, best first: what Pyserini's own searcher finds, and its scores.

    `threads` is by default the number of cores. Queries that find nothing are counted aloud and are not in the run.
    Raises UserError where `index` is no Lucene index.
    """
    run: Run = {}
    with _searcher(index) as searcher:
        searcher.set_bm25(float(k1), float(b))
        for batch in _batches(progress(queries.items(), len(queries), "BM25"), QUERIES_AT_ONCE):
            texts, query_ids = (_java_list(column) for column in ([q[1] for q in batch], [q[0] for q in batch]))
            found = searcher.batch_search(texts, query_ids, depth, threads or _cores())
            for query_id, _ in batch:
                if hits := found.get(query_id):
                    run[query_id] = {hit.docid: hit.score for hit in hits}
    if nothing := [query_id for query_id in queries if query_id not in run]:
        log.info(f"{len(nothing)} of {len(queries)} queries find no document: {', '.join(nothing[:5])}")
    return run


def raw_documents(index: Path, doc_ids: Sequence[str]) -> Iterator[str]:
    """The documents as the index stores them, in the order asked.

    Raises UserError for an id that the index lacks, and for an index that stores no raw documents.
    """
    with _searcher(index) as searcher:
        for doc_id in doc_ids:
            raw = searcher.doc_raw(doc_id)
            if raw is None:
                lacks = "has no document" if searcher.doc(doc_id) is None else "does not store the text of document"
                raise UserError(
                    f"index {index}: {lacks} {doc_id}; take another index, or give the collection's own copy"
                )
            yield raw


def _all_raw_documents(index: Path) -> Iterator[tuple[str, str]]:
    """Every document id with the document as the index stores it, in the index's order."""
    with _searcher(index) as searcher:
        for number in range(int(searcher.get_total_num_docs())):
            document = searcher.doc(number)
            raw = document.get("raw")
            if raw is None:
                raise UserError(f"index {index}: does not store the texts of its documents; take another index")
            yield str(document.get("id")), str(raw)


def with_texts_from_index(collection: Collection, index: Path) -> Collection:
    """The same collection with the document texts that the index stores, for users without a copy of the documents.

    For Robust04 they are the texts that ir_datasets gives, except for the titles of FBIS (see data.irds.read_raw).
    """
    _check_index(index)

    def documents() -> Iterator[tuple[str, str]]:
        for doc_id, raw in _all_raw_documents(index):
            yield doc_id, collection.read_raw(doc_id, raw)

    def texts(doc_ids: Sequence[str]) -> Iterator[str]:
        for doc_id, raw in zip(doc_ids, raw_documents(index, doc_ids), strict=True):
            yield collection.read_raw(doc_id, raw)

    def titled(doc_ids: Sequence[str]) -> Iterator[tuple[str, str]]:
        for doc_id, raw in zip(doc_ids, raw_documents(index, doc_ids), strict=True):
            yield collection.split_raw(doc_id, raw)

    commits = sorted(path.read_bytes() for path in index.glob("segments_*"))  # Lucene writes a random id into each
    return dataclasses.replace(
        collection,
        count=lambda: _count(index),
        documents=documents,
        texts=texts,
        titled=titled,
        fingerprint=short_hash("lucene", *commits),
    )


@functools.cache
def _pyserini() -> Any:
    """Pyserini's module for downloads; its progress bar waits for a second, so that a failed download shows none."""
    start()  # its list of indexes needs Java
    from pyserini import util

    util.TqdmUpTo = functools.partial(util.TqdmUpTo, delay=1)
    return util


def _count(index: Path) -> int:
    with _searcher(index) as searcher:
        return int(searcher.get_total_num_docs())


def _check_index(index: Path) -> Path:
    if not any(index.glob("segments_*")):
        raise UserError(f"index {index}: not a folder with a Lucene index; expected a file segments_N in it")
    return index


@contextlib.contextmanager
def _searcher(index: Path) -> Iterator[Any]:
    with java_error_in_one_line(f"index {index}: Lucene cannot read it"):
        searcher = java_class("io.anserini.search.SimpleSearcher")(str(_check_index(index).resolve()))
    try:
        yield searcher
    finally:
        searcher.close()


def _java_list(items: Iterable[str]) -> Any:
    result = java_class("java.util.ArrayList")()
    for item in items:
        result.add(item)
    return result


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        yield batch


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
