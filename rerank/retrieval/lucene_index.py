"""Lucene indexes: built from a collection's documents, downloaded by Pyserini, or in any folder; their stored texts."""

import contextlib
import functools
import itertools
import json
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from rerank.config.languages import ENGLISH
from rerank.data.collections import Collection
from rerank.data.collections.irds import IrDataset
from rerank.data.types import Document
from rerank.retrieval.java import JavaObject, calling_java, java_class, java_error_in_one_line
from rerank.retrieval.words import analyzer_class, open_analyzer
from rerank.utils.errors import UserError, nearest
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.integrity import changes_since_record, write_record
from rerank.utils.json_files import parse_json
from rerank.utils.locks import make_once
from rerank.utils.parallel import count_cores
from rerank.utils.progress import log, progress
from rerank.utils.texts import counted

PREBUILT = {"disks45/nocr": "robust04"}
"""Fingerprint of a collection -> name of the index that Pyserini offers for download."""
DOCUMENTS_AT_ONCE = 100
"""Documents that are given to Java at once: 1,000 enlarge its heap by 200 MB without faster indexing."""
TEXTS_AT_ONCE = 1000
"""Documents whose texts are read from an index before another thread may call Java."""
SEARCHER = "io.anserini.search.SimpleSearcher"
"""Anserini's searcher class."""
ANOTHER = "take another index, or give the collection's own copy"
REMEDY = "if rerank or Pyserini made it, remove the folder and run again; otherwise take another index"


def choose_index(
    setting: str,
    collection: Collection,
    cache: Path,
    threads: int | None = None,
    language: str = ENGLISH,
    with_words: bool = False,
) -> Path:
    """The Lucene index to search.

    `setting` is "own" (built once under `cache` from the collection's documents), the name of a prebuilt index, a
    folder with a Lucene index, or "auto": "own" if the collection has documents, otherwise its prebuilt index.
    `language` and `with_words` apply to a new index only; `with_words` stores the words of each document, which RM3
    needs. Raises UserError if there is no such index, it cannot be downloaded or built, or an own index is damaged, and
    for an unknown language.
    """
    prebuilt = PREBUILT.get(collection.fingerprint)
    if setting == "auto":
        setting = prebuilt if prebuilt and not collection.has_documents else "own"
    if setting == "own":
        folder = own_index(collection, cache, language, with_words)
        documents, count = collection.documents, collection.count
        make_once(folder, "index", lambda: build_index(documents(), folder, threads, count(), language, with_words))
        if changed := changes_since_record(folder):
            raise UserError(f"index {folder}: damaged ({'; '.join(changed[:3])}); remove the folder to build it again")
        return folder
    if "/" in setting or Path(setting).is_dir():
        return check_index(Path(setting))
    return prebuilt_index(setting)


def own_index(collection: Collection, cache: Path, language: str = ENGLISH, with_words: bool = False) -> Path:
    """Where the index that is built from the collection's documents is, under `cache`."""
    stems, words = "" if language == ENGLISH else f"-{language}", "-words" if with_words else ""
    return cache / f"{collection.name}{stems}{words}-{short_hash(collection.fingerprint)}"


def build_index(
    documents: Iterable[Document],
    folder: Path,
    threads: int | None = None,
    count: int = 0,
    language: str = ENGLISH,
    with_words: bool = False,
) -> None:
    """Writes a Lucene index of documents with Anserini's stop words and stemmer of the language.

    The index does not store the texts, because a search would read them for every hit; `with_words` stores the words of
    each document. `threads` is by default the number of cores; `count` is for the progress bar. Documents without text
    are not indexed; the log has their number. Raises UserError if Lucene cannot write all others, for example on a full
    disk.
    """
    written, empty, left = 0, 0, progress(documents, count, "indexing")
    full = f"{folder}: Lucene cannot write it (disk full?)"
    with atomic_write(folder) as tmp:
        with java_error_in_one_line(full):
            indexer = _open_indexer(tmp, threads or count_cores(), language, with_words)
        try:
            while chunk := list(itertools.islice(left, DOCUMENTS_AT_ONCE)):
                batch = [json.dumps({"id": doc.doc_id, "contents": doc.text}) for doc in chunk if doc.text.strip()]
                with java_error_in_one_line(full):
                    if batch and indexer.addRawDocuments(batch) != len(batch):
                        raise UserError(f"{full}: it has not taken all documents")
                written, empty = written + len(batch), empty + len(chunk) - len(batch)
        finally:
            with java_error_in_one_line(full):
                indexer.close()
        if not written:
            raise UserError(f"{folder}: there is no document with text to index; expected at least one")
        # Lucene reports no error when the disk is full.
        if not any(tmp.glob("segments_*")) or count_documents(tmp) != written:
            raise UserError(f"{full}: expected an index of {written} documents")
        (tmp / "write.lock").unlink(missing_ok=True)
        write_record(tmp)
    if empty:
        log.info(f"BM25 cannot find {counted(empty, 'document')} without text")


def _open_indexer(folder: Path, threads: int, language: str, with_words: bool) -> JavaObject:
    """Anserini's indexer of documents in a language; its map of languages is changed only during the call."""
    indexer = java_class("io.anserini.index.SimpleIndexer")
    arguments = ["-collection", "JsonCollection", "-input", "", "-index", str(folder.resolve())]
    arguments += ["-threads", str(threads), *(["-storeDocvectors"] if with_words else [])]
    if language == ENGLISH:
        return indexer(arguments)
    open_analyzer(language)
    analyzers = java_class("io.anserini.analysis.AnalyzerMap").analyzerMap
    before = analyzers.put(language, analyzer_class(language))
    try:
        return indexer([*arguments, "-language", language])
    finally:
        if before is None:
            analyzers.remove(language)
        else:
            analyzers.put(language, before)


def prebuilt_index(name: str) -> Path:
    """The folder of Pyserini's prebuilt index, downloaded on first use into Pyserini's cache (PYSERINI_CACHE).

    Raises UserError for an unknown name and if the download fails.
    """
    with calling_java():  # Pyserini's list of indexes needs Java
        from pyserini import util

    if name not in util.TF_INDEX_INFO:
        hint = nearest(name, util.TF_INDEX_INFO)
        raise UserError(f"index {name}: neither auto, own, a folder nor an index of Pyserini; {hint}")
    about = util.TF_INDEX_INFO[name]
    place = Path(util.get_cache_home()) / "indexes" / f"{about['filename'].removesuffix('.tar.gz')}.{about['md5']}"
    try:
        make_once(place, "index", lambda: _download(about, place))
        return place
    except (OSError, ValueError, AssertionError, EOFError) as error:
        raise UserError(
            f"index {name}: not at {place}, and its download failed ({type(error).__name__}); connect to the network "
            f"once, or take --first-stage.index own or a folder with a Lucene index, or --first-stage.run a TREC run"
        ) from error


def _download(about: Mapping[str, Any], place: Path) -> None:
    """Downloads a prebuilt index and unpacks it to `place`; Pyserini's function for both prints to standard output."""
    from pyserini.util import download_url

    *mirrors, last = about["urls"]
    with atomic_write(place) as tmp, tempfile.TemporaryDirectory(dir=tmp.parent) as folder:
        known = {"local_filename": "index.tar.gz", "md5": about["md5"], "force": True, "verbose": False}
        fetch = functools.partial(download_url, save_dir=folder, **known)
        for url in mirrors:
            with contextlib.suppress(OSError, AssertionError):
                archive = fetch(url)
                break
        else:
            archive = fetch(last)
        with tarfile.open(archive) as unpacked:
            unpacked.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
            unpacked.extractall(folder)
        (index,) = Path(folder).glob("*/")
        index.rename(tmp)


def check_index(index: Path) -> Path:
    """Returns the folder; raises UserError if it has no Lucene index."""
    if not any(index.glob("segments_*")):
        raise UserError(f"index {index}: not a folder with a Lucene index; expected a file segments_N in it")
    return index


def index_identity(index: Path) -> str:
    """A hash of the index's commits; Lucene gives each commit a random id."""
    return short_hash("lucene", *sorted(path.read_bytes() for path in index.glob("segments_*")))


@contextlib.contextmanager
def reading(index: Path) -> Iterator[None]:
    """Lets only this thread call Java within the block; raises UserError for a Java error, as of a damaged index."""
    with java_error_in_one_line(f"index {index}: Lucene cannot read it", REMEDY):
        yield


@contextlib.contextmanager
def open_searcher(index: Path) -> Iterator[JavaObject]:
    """Yields Anserini's searcher of a Lucene index, and closes it. Raises the errors of `check_index` and `reading`."""
    check_index(index)
    with reading(index), contextlib.closing(java_class(SEARCHER)(str(index.resolve()))) as searcher:
        yield searcher


def count_documents(index: Path) -> int:
    """The number of documents of a Lucene index."""
    with open_searcher(index) as searcher:
        return int(searcher.get_total_num_docs())


class StoredDocument(TypedDict):  # by Anserini's JsonCollection
    contents: str


@dataclass(frozen=True)
class IndexedTexts:
    """The documents of the collection `source` from the texts that a Lucene index stores; see `Documents`.

    For Robust04 the texts equal those of ir_datasets, except for the titles of FBIS (see `IrDataset.parse_sgml`).
    Raises UserError if the index does not store the texts.
    """

    source: str
    index: Path
    has_documents = found_at_once = True

    @functools.cached_property
    def fingerprint(self) -> str:
        return index_identity(self.index)

    def count(self) -> int:
        return count_documents(self.index)

    def documents(self) -> Iterator[Document]:
        return self._read(range(self.count()))

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        return self._read(doc_ids)

    def known(self, doc_ids: Iterable[str]) -> set[str]:
        with open_searcher(self.index) as searcher:
            return {doc_id for doc_id in doc_ids if searcher.doc(doc_id) is not None}

    def _read(self, keys: Sequence[str] | Sequence[int]) -> Iterator[Document]:
        """Yields the documents with these ids, or with these numbers in the index."""
        for start in range(0, len(keys), TEXTS_AT_ONCE):
            with open_searcher(self.index) as searcher:
                found = [self._document(searcher, key) for key in keys[start : start + TEXTS_AT_ONCE]]
            yield from found

    def _document(self, searcher: JavaObject, key: str | int) -> Document:
        document = searcher.doc(key)
        if document is None:
            raise UserError(f"index {self.index}: has no document {key}; {ANOTHER}")
        return self._parse(str(document.get("id")), document.get("raw"))

    def _parse(self, doc_id: str, raw: str | None) -> Document:
        """The document of a stored text: JSON, or the SGML of Anserini's TrecCollection."""
        if raw is None:
            raise UserError(f"index {self.index}: does not store the text of document {doc_id}; {ANOTHER}")
        if not raw.lstrip().startswith("{") and IrDataset.matches(self.source):
            return IrDataset(self.source).parse_sgml(doc_id, raw)
        try:
            return Document(doc_id, "", parse_json(raw.encode(), StoredDocument)["contents"])
        except ValueError as error:
            raise UserError(
                f"index {self.index}: stores {raw[:40]!r} of document {doc_id}, expected JSON with contents ({error}); "
                f"{ANOTHER}"
            ) from None


def with_indexed_texts(collection: Collection, index: Path) -> Collection:
    """The collection with the stored texts of a Lucene index as documents; raises UserError for any other folder."""
    return replace(collection, texts=IndexedTexts(collection.source, check_index(index)))
