"""The first stage: BM25 by Pyserini (Lucene), with an index of our own, a prebuilt one, or any Lucene index.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009; Lin et al., "Pyserini", 2021.
"""

import contextlib
import difflib
import functools
import io
import itertools
import json
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rerank.data.collections import Collection, open_collection, queries_to_search
from rerank.data.types import Document, Run
from rerank.retrieval.java import java_class, java_error_in_one_line, start
from rerank.retrieval.languages import ENGLISH, check_language, open_analyzer
from rerank.retrieval.searchers import check_index, count_documents, expect_undamaged, open_searcher, record_index
from rerank.utils.cores import count_cores
from rerank.utils.errors import UserError, nearest
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.locks import make_once
from rerank.utils.progress import log, progress

PREBUILT = {"disks45/nocr": "robust04"}
"""fingerprint of a collection -> name of the index that Pyserini offers for download."""

DOCUMENTS_AT_ONCE = 100
"""Documents that Java gets at a time: with 1,000 its heap grows by 200 MB, and indexing is not faster."""
LONGEST_TEXT = 20_000_000
"""Characters of a text that Anserini's JSON reader (Jackson) takes."""
QUERIES_AT_ONCE = 20
NAMED = 5
"""Queries without a result that a line names."""
CLOSED = "org.apache.lucene.store.AlreadyClosedException"
"""The exception of an indexer that has given up, as on a full disk."""
MAX_TERMS = 2**31 - 1
"""The distinct terms that a query may have: any number. With more than 1,024 Lucene's default is an error."""


def retrieve(
    collection: Collection | str,
    depth: int = 1000,
    k1: float = 0.9,
    b: float = 0.4,
    index: str = "auto",
    cache: str | Path | None = None,
    threads: int | None = None,
    language: str = ENGLISH,
) -> Run:
    """The best `depth` documents of each judged query of a collection by BM25, best first.

    Without judgments all queries are searched. `collection` is an opened collection, or a folder or id to open. `index`
    is as in `choose_index`; an index that is built is kept in the folder `cache`, by default a temporary one that is
    removed. `language` is a code such as "de" (`rerank.retrieval.languages`). Raises UserError as `choose_index`.
    """
    collection = open_collection(collection) if isinstance(collection, str) else collection
    with contextlib.ExitStack() as stack:
        folder = cache or stack.enter_context(tempfile.TemporaryDirectory(prefix="rerank-"))
        found = choose_index(index, collection, Path(folder), threads, language)
        return search(found, queries_to_search(collection), depth, k1, b, threads, language)


def choose_index(
    setting: str, collection: Collection, cache: Path, threads: int | None = None, language: str = ENGLISH
) -> Path:
    """The Lucene index to search.

    `setting` is "own" (built once under `cache` from the collection's documents), the name of a prebuilt index, a
    folder with a Lucene index, or "auto": "own" if the documents can be had, else the prebuilt index of the
    collection. `language` is that of an index that is built; the others have their own. Raises UserError if there is no
    such index or it cannot be had, if an own index is damaged, and for an unknown language.
    """
    check_language(language)
    prebuilt = PREBUILT.get(collection.fingerprint)
    if setting == "auto":
        setting = prebuilt if prebuilt and not collection.has_documents else "own"
    if setting == "own":
        stems = "" if language == ENGLISH else f"-{language}"
        folder = cache / f"{collection.name}{stems}-{short_hash(collection.fingerprint)}"
        make_once(
            folder,
            "index",
            lambda: build_index(collection.documents(), folder, threads, collection.count(), language),
        )
        expect_undamaged(folder)
        return folder
    if "/" in setting or Path(setting).is_dir():
        return check_index(Path(setting))
    return prebuilt_index(setting)


def build_index(
    documents: Iterable[Document], folder: Path, threads: int | None = None, count: int = 0, language: str = ENGLISH
) -> None:
    """Writes a Lucene index of documents: stop words and stems of the language, by Anserini.

    The index does not store the texts: the collection has them, and Anserini reads all that is stored of every hit, so
    that a search would read each document that it finds. `threads` is by default the number of cores; `count` is for
    the progress bar. No query can find a document without text: their number is logged. Raises UserError if Lucene
    cannot write all others, as on a full disk.
    """
    empty: list[str] = []

    def with_text() -> Iterator[str]:
        for document in progress(documents, count, "indexing"):
            if len(document.text) > LONGEST_TEXT:
                raise UserError(
                    f"document {document.doc_id}: has {len(document.text)} characters, of which Lucene takes "
                    f"{LONGEST_TEXT} at most; split or shorten it"
                )
            if document.text.strip():
                yield json.dumps({"id": document.doc_id, "contents": document.text})
            else:
                empty.append(document.doc_id)

    with atomic_write(folder) as tmp, java_error_in_one_line(f"{folder}: Lucene cannot write it (disk full?)"):
        arguments = ["-collection", "JsonCollection", "-input", "", "-index", str(tmp.resolve())]
        if language != ENGLISH:
            open_analyzer(language)
            arguments += ["-language", language]
        indexer = java_class("io.anserini.index.SimpleIndexer")([*arguments, "-threads", str(threads or count_cores())])
        written = 0
        try:
            for batch in _batches(with_text(), DOCUMENTS_AT_ONCE):
                if indexer.addRawDocuments(batch) != len(batch):
                    _expect_documents(indexer, batch)
                    raise UserError(f"{folder}: Lucene could not write all documents; is the disk full?")
                written += len(batch)
        finally:
            indexer.close()
        if not written:
            raise UserError(f"{folder}: there is no document with text to index; expected at least one")
        if (
            not any(tmp.glob("segments_*")) or count_documents(tmp) != written
        ):  # Lucene says nothing when the disk is full
            raise UserError(f"{folder}: Lucene could not write all {written} documents; is the disk full?")
        record_index(tmp)
    if empty:
        log.info(f"{len(empty)} documents have no text, so BM25 cannot find them: {', '.join(empty[:5])}")


def _expect_documents(indexer: Any, batch: list[str]) -> None:
    """Raises UserError for the first of these documents that Lucene cannot take, each by itself."""
    for raw in batch:
        with java_error_in_one_line(f"document {json.loads(raw)['id'][:60]}: Lucene cannot take it", but=CLOSED):
            indexer.addRawDocument(raw)


def prebuilt_index(name: str) -> Path:
    """The folder of an index that Pyserini offers, downloaded on first use into Pyserini's cache (PYSERINI_CACHE).

    Raises UserError for an unknown name and if the download fails.
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


def search(
    index: Path,
    queries: Mapping[str, str],
    depth: int,
    k1: float = 0.9,
    b: float = 0.4,
    threads: int | None = None,
    language: str = ENGLISH,
) -> Run:
    """The best `depth` documents of each query by BM25, best first: the documents and scores of Pyserini's searcher.

    A query may have any number of terms. `threads` is by default the number of cores. Queries without a result are not
    in the run, and their number is logged. `language` is that of the queries, and should be that of the index. Raises
    UserError if `index` is not a Lucene index, and for an unknown language.
    """
    found = search_each(index, queries, depth, k1, b, threads, language)
    run = {query_id: scores for query_id, scores in found if scores}
    unanswered = [query_id for query_id in queries if query_id not in run]
    log_unanswered(unanswered, len(unanswered), len(queries))
    return run


def search_each(
    index: Path,
    queries: Mapping[str, str],
    depth: int,
    k1: float = 0.9,
    b: float = 0.4,
    threads: int | None = None,
    language: str = ENGLISH,
    before: int = 0,
) -> Generator[tuple[str, dict[str, float]]]:
    """As `search`, query by query, in the order of `queries`, so that their results need not be in memory together.

    {} is the result of a query without one. The first `before` queries are left out.
    """
    with _open_bm25(index, k1, b, language) as searcher:
        left = itertools.islice(queries.items(), before, None)
        for batch in _batches(progress(left, len(queries), "BM25", before=before), QUERIES_AT_ONCE):
            texts, query_ids = (_java_list(column) for column in ([q[1] for q in batch], [q[0] for q in batch]))
            results = _batch_search(searcher, texts, query_ids, depth, threads or count_cores())
            for query_id, _ in batch:
                yield query_id, {hit.docid: hit.score for hit in results.get(query_id) or ()}


def log_unanswered(first: Sequence[str], unanswered: int, queries: int) -> None:
    """Logs how many of the queries find no document; `first` are the ids of the first NAMED of them, or more."""
    if unanswered:
        log.info(f"{unanswered} of {queries} queries find no document: {', '.join(first[:NAMED])}")


def search_one(
    index: Path, query: str, depth: int, k1: float = 0.9, b: float = 0.4, language: str = ENGLISH
) -> dict[str, float]:
    """The best `depth` documents of one query by BM25, best first: as `search`, without a thread or a line in the log.

    {} for a query without a word of the index. Raises UserError as `search`.
    """
    with _open_bm25(index, k1, b, language) as searcher:
        return {hit.docid: hit.score for hit in searcher.search(query, depth)}


@contextlib.contextmanager
def _open_bm25(index: Path, k1: float, b: float, language: str) -> Iterator[Any]:
    with open_searcher(index) as searcher:
        java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(MAX_TERMS)
        if language != ENGLISH:
            searcher.set_analyzer(open_analyzer(language))
        searcher.set_bm25(float(k1), float(b))
        yield searcher


def _batch_search(searcher: Any, texts: Any, query_ids: Any, depth: int, threads: int) -> Any:
    """Anserini's search of some queries; if it fails, with the exception of the query that failed."""
    from jnius import JavaException

    try:
        return searcher.batch_search(texts, query_ids, depth, threads)
    except JavaException:
        for text in texts:
            searcher.search(text, depth)
        raise


@functools.cache
def _pyserini() -> Any:
    """Pyserini's module for downloads; its progress bar waits for a second, so that a failed download draws none."""
    start()  # its list of indexes needs Java
    from pyserini import util

    util.TqdmUpTo = functools.partial(util.TqdmUpTo, delay=1)
    return util


def _java_list(items: Iterable[str]) -> Any:
    result = java_class("java.util.ArrayList")()
    for item in items:
        result.add(item)
    return result


def _batches(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        yield batch
