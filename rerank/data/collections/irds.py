"""The collections of ir_datasets (MacAvaney et al., "Simplified Data Wrangling with ir_datasets", 2021).

Importing ir_datasets takes half a second, so only `library` imports it.
"""

import contextlib
import functools
import importlib
import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Protocol

from rerank.data.folds import Judged, merge_splits, official_folds
from rerank.data.types import Document, Qrels
from rerank.utils.errors import UserError, nearest
from rerank.utils.progress import quiet

DOCUMENTS_AT_ONCE = 256
CONTENTS = {"documents": "has_docs", "queries": "has_queries", "qrels": "has_qrels"}
ENDS = {"train": ("train", "training"), "valid": ("dev", "valid", "val", "validation"), "test": ("test",)}
"""Split -> possible ends of its id."""


def library() -> ModuleType:
    """The module ir_datasets."""
    return importlib.import_module("ir_datasets")


class Doc(Protocol):
    """What is read of a document of ir_datasets."""

    doc_id: str

    def default_text(self) -> str: ...


class DocsStore(Protocol):
    """What is called of ir_datasets' store of documents."""

    def get_many(self, doc_ids: Sequence[str]) -> Mapping[str, Doc]: ...


class DocsHandler(Protocol):
    """What is called of the documents of a dataset."""

    def docs_store(self) -> DocsStore: ...


@dataclass(frozen=True)
class IrDataset:
    """A collection of ir_datasets by its id; see `Source` for its attributes.

    An id with a published split has the queries of all its splits: beir/fiqa has those of beir/fiqa/train, /dev and
    /test. Opening raises UserError if ir_datasets has no such id or no documents for it.
    """

    source: str

    def __post_init__(self) -> None:
        registry = library().registry
        if self.source not in registry:
            hint = nearest(self.source, registry)
            raise UserError(f"collection {self.source}: no such file or folder, and ir_datasets has no such id; {hint}")
        self._check_contents("documents")

    @classmethod
    def matches(cls, source: str) -> bool:
        """Whether the source may be an id: it does not look like a path, or ir_datasets knows it."""
        if source.startswith(("/", ".", "~")) or Path(source).exists():
            return False
        folder, *below = Path(source).parts
        return not (below and Path(folder).exists()) or source in library().registry

    @property
    def name(self) -> str:
        return self.source.replace("/", "-")

    @functools.cached_property
    def queries(self) -> dict[str, str]:
        return self.queries_by([])

    def queries_by(self, fields: Sequence[str]) -> dict[str, str]:
        """The queries with these fields as their text; without fields ir_datasets' default, such as the title."""
        if not self._split:
            self._check_contents("documents", "queries")
        ids = self._split.values() or [self.source]
        return {query_id: text for id_ in ids for query_id, text in _read_queries(id_, fields).items()}

    @functools.cached_property
    def judged(self) -> Judged:
        """The judgments, with the published split or the subsets fold1, fold2, … of the id as folds."""
        if self._split:
            tested, parent = self._split["test"], f"{self.source}/test"
            notes = [f"{self.source}: no judged queries in {parent}, so those of {tested} test"] * (tested != parent)
            return merge_splits({split: _read_qrels(id_) for split, id_ in self._split.items()}, self.source, *notes)
        prefix = f"{self.source}/fold"
        ids = [id_ for id_ in sorted(library().registry) if id_.startswith(prefix)]
        folds = official_folds([(id_.removeprefix(prefix), _read_queries(id_)) for id_ in ids]) if ids else []
        return Judged(_read_qrels(self.source), tuple(folds))

    @functools.cached_property
    def _split(self) -> dict[str, str]:
        """Split -> id of the training, test and optional validation queries; {} without a published split."""
        registry, ids = library().registry, dict[str, str]()
        for split, ends in ENDS.items():
            below = [f"{self.source}/{end}" for end in ends if f"{self.source}/{end}" in registry]
            if judged := [id_ for id_ in below if _has(registry[id_], "queries", "qrels")]:
                ids[split] = judged[0]
        if "test" not in ids and "valid" in ids:
            ids["test"] = ids.pop("valid")
        return ids if {"train", "test"} <= ids.keys() else {}

    @property
    def fingerprint(self) -> str:
        return str(library().docs_parent_id(self.source))

    @property
    def has_documents(self) -> bool:
        return not _missing_documents(self._handler)

    @property
    def found_at_once(self) -> bool:
        return _is_built(self._handler)

    def place_of(self, query_id: str, doc_id: str) -> str:
        return f"{self.source}, query {query_id}, document {doc_id}"

    def expect_judgments(self) -> None:
        if not self._split:
            self._check_contents("documents", "queries", "qrels")

    def count(self) -> int:
        return int((library().load(self.source).docs_metadata() or {}).get("count") or 0)

    def documents(self) -> Iterator[Document]:
        self._check_documents()
        with _error_in_one_line(self.source, "docs"):
            left = iter(library().load(self.source).docs_iter())
        while True:  # ir_datasets' logger is quiet only while documents are read, not while the caller uses them
            with _error_in_one_line(self.source, "docs"):
                documents = [_document(doc) for doc in islice(left, DOCUMENTS_AT_ONCE)]
            if not documents:
                return
            yield from documents

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        self._check_documents()
        with _error_in_one_line(self.source, "docs"):
            store = self._handler.docs_store()  # built by ir_datasets on the first call
        for start in range(0, len(doc_ids), DOCUMENTS_AT_ONCE):
            requested = doc_ids[start : start + DOCUMENTS_AT_ONCE]
            with _error_in_one_line(self.source, "docs"):
                docs = store.get_many(requested)
            for doc_id in requested:
                if doc_id not in docs:
                    message = "the run, judgments or lists come from another collection"
                    raise UserError(f"{self.source}: has no document {doc_id}; {message}")
                yield _document(docs[doc_id])

    def known(self, doc_ids: Iterable[str]) -> set[str]:
        self._check_documents()
        with _error_in_one_line(self.source, "docs"):
            return set(self._handler.docs_store().get_many(list(doc_ids)))

    def parse_sgml(self, doc_id: str, sgml: str) -> Document:
        """The document of the SGML that Anserini's TrecCollection stores in a Lucene index.

        ir_datasets' own parser reads the SGML, so the text equals `default_text()` of the same document, except that
        FBIS documents lose their title: it is in H3, and Anserini keeps only TEXT, HEADLINE, TITLE, HL, HEAD, TTL, DD,
        DATE, LP and LEADPARA. Raises UserError if the collection is not SGML.
        """
        parse = getattr(self._handler, "_parser", None)
        if parse is None:
            raise UserError(f"document {doc_id}: the index stores {sgml[:40]!r}..., neither JSON nor TREC's SGML")
        whole = f"<DOC>\n<DOCNO> {doc_id} </DOCNO>\n{sgml}\n</DOC>\n"
        return _document(next(iter(parse(io.BytesIO(whole.encode())))), doc_id)

    @property
    def _handler(self) -> DocsHandler:
        handler: DocsHandler = library().load(self.source).docs_handler()
        return handler

    def _check_contents(self, *expected: str) -> None:
        """Raises UserError if the id lacks one of the `expected` "documents", "queries" and "qrels"."""
        registry = library().registry
        if missing := [kind for kind in expected if not _has(registry[self.source], kind)]:
            below = [name for name in registry if name.startswith(f"{self.source}/")]
            complete = [name for name in below if _has(registry[name], *CONTENTS)]
            hint = f"below it, these have all three: {', '.join(complete[:5])}" if complete else "choose another id"
            raise UserError(f"collection {self.source}: ir_datasets has no {' and no '.join(missing)} for it; {hint}")

    def _check_documents(self) -> None:
        if missing := _missing_documents(self._handler):
            raise UserError(
                f"{self.source}: its documents are not on this machine: {missing}; put your copy or a link there, or "
                "take the texts from a Lucene index that stores them (--first-stage.index)"
            )


class _Document(Document):
    """A document with ir_datasets' default text: not every collection joins title and body by a space."""

    default_text: str

    @property
    def text(self) -> str:
        return self.default_text


def _document(doc: Doc, doc_id: str = "") -> Document:
    """Converts a document; it has a separate title only if its default text begins with the title."""
    text = doc.default_text()
    title, body = (getattr(doc, "title", None) or "").strip(), text.strip()
    if title and body.startswith(title):
        body = body[len(title) :].strip()
        title = re.sub(r"^FT\s+\d+ [A-Z]+ \d+ / ", "", title)  # the date before a headline of the Financial Times
    else:
        title = ""
    document = _Document(doc_id or doc.doc_id, title, body)
    document.default_text = text
    return document


def _has(dataset: object, *kinds: str) -> bool:
    return all(getattr(dataset, CONTENTS[kind])() for kind in kinds)


def _read_queries(source: str, fields: Sequence[str] = ()) -> dict[str, str]:
    dataset = library().load(source)
    known = [name for name, kind in dataset.queries_cls().__annotations__.items() if kind is str and name != "query_id"]
    if unknown := [field for field in fields if field not in known]:
        hint = nearest(unknown[0], known, f"{source} has {', '.join(known)}")
        raise UserError(f"--collection.query-field {'+'.join(fields)}: no field {unknown[0]}; {hint}")
    with _error_in_one_line(source, "queries"):
        if not fields:  # the default text is that of a topic's title, for example
            return {query.query_id: query.default_text() for query in dataset.queries_iter()}
        return {query.query_id: _joined(query, fields) for query in dataset.queries_iter()}


def _joined(query: object, fields: Sequence[str]) -> str:
    """The fields of a query, on one line."""
    return " ".join(" ".join(getattr(query, field).split()) for field in fields).strip()


def _read_qrels(source: str) -> Qrels:
    dataset = library().load(source)
    with _error_in_one_line(source, "qrels"):
        return Qrels(dataset.qrels_dict() if _has(dataset, "qrels") else {})


def _missing_documents(handler: DocsHandler) -> str:
    """The expected files, if only the owner distributes the documents and they are not on this machine; else "".

    It reads private attributes of ir_datasets; if these are renamed, the message says less.
    """
    util, download = library().util, getattr(handler, "_docs_dlc", None)
    if not isinstance(download, util.Download) or not all(isinstance(m, util.LocalDownload) for m in download.mirrors):
        return ""  # the documents can be downloaded
    place = Path(download.path(force=False))
    globs, number = getattr(handler, "_path_globs", None), getattr(handler, "_expected_file_count", None)
    files = f", with {number or 'the'} files that match {', '.join(globs)}, uncompressed" if globs else ""
    return "" if _is_built(handler) or place.exists() else f"expected {place}{files}"


def _is_built(handler: DocsHandler) -> bool:
    """Whether ir_datasets has built its store of the documents; not every store says so."""
    built = getattr(handler.docs_store(), "built", None)
    return bool(built and built())


@contextlib.contextmanager
def _error_in_one_line(source: str, kind: str) -> Iterator[None]:
    """Raises UserError if ir_datasets cannot read "docs", "queries" or "qrels"; its logger is quiet in the block."""
    library().log.easy().logger()  # creates ir_datasets' logger, with its own level and handler
    try:
        with quiet("ir_datasets", level=logging.CRITICAL):
            yield
    except (OSError, RuntimeError, EOFError, ValueError, AssertionError) as error:
        handler = getattr(library().load(source), f"{kind}_handler")()
        place = getattr(getattr(handler, f"_{kind}_dlc", None), "_cache_path", None) or library().util.home_path()
        name = "documents" if kind == "docs" else kind
        raise UserError(
            f"{source}: its {name} cannot be read: {_reason(error)}; connect to the network once, or put the file at "
            f"{place} (IR_DATASETS_HOME moves the folder)"
        ) from error


def _reason(error: BaseException) -> str:
    if len(error.args) == 2 and isinstance(error.args[1], list):  # one error per mirror
        error = error.args[1][-1][1]
    if type(error).__module__.startswith("requests"):
        return f"the download failed ({type(error).__name__}: no network?)"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
