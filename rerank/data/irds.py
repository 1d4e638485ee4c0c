"""The collections that ir_datasets knows (MacAvaney et al., "Simplified Data Wrangling with ir_datasets", 2021).

ir_datasets takes half a second to import, so only functions import it; its log to the terminal is turned off.
"""

import contextlib
import difflib
import functools
import io
import json
import logging
import re
from collections.abc import Iterator, Sequence
from glob import glob  # unlike Path.glob, it follows links to folders
from pathlib import Path
from typing import Any

from rerank.errors import UserError, nearest
from rerank.types import Qrels
from rerank.utils.progress import progress

TEXTS_AT_ONCE = 256


@functools.cache
def _library() -> Any:
    """The module ir_datasets, with its log off and its progress in the form of ours."""
    import ir_datasets

    ir_datasets.log.easy().logger().setLevel(logging.CRITICAL)
    ir_datasets.log.Logger.pbar = lambda _, items, *__, total=None, **___: progress(items, total or 0, "documents read")
    return ir_datasets


def check_id(source: str, documents_only: bool = False) -> None:
    """Raises UserError where ir_datasets has no such id, or the id comes without documents, queries or qrels.

    With `documents_only` queries and qrels may lack.
    """
    registry = _library().registry
    try:
        dataset = registry[source]
    except KeyError:
        near = difflib.get_close_matches(source, registry, n=3, cutoff=0)
        raise UserError(
            f"collection {source}: there is no such folder, and ir_datasets has no such id; {nearest(source, near)}"
        ) from None
    parts = {"documents": dataset.has_docs()}
    if not documents_only:
        parts |= {"queries": dataset.has_queries(), "qrels": dataset.has_qrels()}
    if missing := [part for part, there in parts.items() if not there]:
        whole = [name for name in registry if name.startswith(f"{source}/") and _is_whole(registry[name])]
        hint = f"below it, these have all three: {', '.join(whole[:5])}" if whole else "choose an id that has all three"
        raise UserError(f"collection {source}: ir_datasets has no {' and no '.join(missing)} for it; {hint}")


def _is_whole(dataset: Any) -> bool:
    return bool(dataset.has_docs() and dataset.has_queries() and dataset.has_qrels())


def read_queries(source: str) -> dict[str, str]:
    """query_id -> text; the title, for TREC topics. Raises UserError where the queries cannot be had."""
    dataset = _library().load(source)
    with _one_line(source, "queries", getattr(dataset.queries_handler(), "_queries_dlc", None)):
        return {query.query_id: query.default_text() for query in dataset.queries_iter()}


def read_qrels(source: str) -> Qrels:
    """The judgments. Raises UserError where they cannot be had."""
    dataset = _library().load(source)
    qrels: Qrels = {}
    with _one_line(source, "qrels", getattr(dataset.qrels_handler(), "_qrels_dlc", None)):
        for qrel in dataset.qrels_iter():
            qrels.setdefault(qrel.query_id, {})[qrel.doc_id] = qrel.relevance
    return qrels


def official_folds(source: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The names and query ids of the subsets fold1, fold2, ... that ir_datasets has below the id."""
    ids = sorted(name for name in _library().registry if name.startswith(f"{source}/fold"))
    return tuple((name.rsplit("/", 1)[1], tuple(read_queries(name))) for name in ids)


def documents_id(source: str) -> str:
    """The id that all collections with these documents share."""
    return str(_library().docs_parent_id(source))


def count_documents(source: str) -> int:
    """How many documents ir_datasets says that the collection has, 0 where it does not say."""
    return int((_library().load(source).docs_metadata() or {}).get("count") or 0)


def has_documents(source: str) -> bool:
    """Whether the documents are on this machine or can be downloaded.

    Raises UserError where the user's own copy is there but is not complete.
    """
    handler = _library().load(source).docs_handler()
    place = _own_copy(handler)
    return place is None or _is_built(handler) or _is_complete(handler, place)


def read_documents(source: str) -> Iterator[tuple[str, str]]:
    """Every document id with ir_datasets' default text. Raises UserError where the documents cannot be had."""
    _check_documents(source)
    dataset = _library().load(source)
    with _one_line(source, "documents", getattr(dataset.docs_handler(), "_docs_dlc", None)):
        for doc in dataset.docs_iter():
            yield doc.doc_id, doc.default_text()


def read_texts(source: str, doc_ids: Sequence[str]) -> Iterator[str]:
    """The default texts of the documents, in the order asked; ir_datasets makes its own store on the first call.

    Raises UserError where the documents cannot be had and for an id that the collection lacks.
    """
    return (doc.default_text() for doc in _docs(source, doc_ids))


def read_titled(source: str, doc_ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Title ("" where there is none) and body of the documents, as `read_texts`."""
    return (_split(doc) for doc in _docs(source, doc_ids))


def _docs(source: str, doc_ids: Sequence[str]) -> Iterator[Any]:
    _check_documents(source)
    handler = _library().load(source).docs_handler()
    with _one_line(source, "documents", getattr(handler, "_docs_dlc", None)):
        store = handler.docs_store()
        for start in range(0, len(doc_ids), TEXTS_AT_ONCE):
            wanted = doc_ids[start : start + TEXTS_AT_ONCE]
            docs = store.get_many(wanted)
            for doc_id in wanted:
                if doc_id not in docs:
                    raise UserError(
                        f"{source}: has no document {doc_id}; the run or the qrels come from another collection"
                    )
                yield docs[doc_id]


def _split(doc: Any) -> tuple[str, str]:
    """Title and body of a document whose default text begins with its title; else "" and the whole text.

    The date that the Financial Times puts before its headlines ("FT  14 MAY 91 / ") is no part of a title.
    """
    text, title = doc.default_text().strip(), (getattr(doc, "title", None) or "").strip()
    if not title or not text.startswith(title):
        return "", text
    return re.sub(r"^FT\s+\d+ [A-Z]+ \d+ / ", "", title), text[len(title) :].strip()


def read_raw(source: str, doc_id: str, raw: str) -> str:
    """The text of a document as a Lucene index stores it: JSON, or the SGML that Anserini's TrecCollection keeps.

    SGML goes through ir_datasets' own parser, so the text is `default_text()` of the same document, with one
    exception: Anserini keeps the elements TEXT, HEADLINE, TITLE, HL, HEAD, TTL, DD, DATE, LP and LEADPARA only, and the
    title of an FBIS document stands in H3.
    """
    return read_json(doc_id, raw) if _is_json(raw) else str(_parsed(source, doc_id, raw).default_text())


def split_raw(source: str, doc_id: str, raw: str) -> tuple[str, str]:
    """Title and body of the same document; JSON has no title of its own."""
    return ("", read_json(doc_id, raw)) if _is_json(raw) else _split(_parsed(source, doc_id, raw))


def _is_json(raw: str) -> bool:
    return raw.lstrip().startswith("{")


def _parsed(source: str, doc_id: str, raw: str) -> Any:
    handler = _library().load(source).docs_handler()
    parser = getattr(handler, "_parser", None)
    if parser is None:
        raise UserError(f"document {doc_id}: the index stores {raw[:40]!r}..., which is neither JSON nor TREC's SGML")
    whole = f"<DOC>\n<DOCNO> {doc_id} </DOCNO>\n{raw}\n</DOC>\n"
    return next(iter(parser(io.BytesIO(whole.encode()))))


def read_json(doc_id: str, raw: str) -> str:
    """The text of a document as an index of a JsonCollection stores it. Raises UserError where it has another form."""
    try:
        return str(json.loads(raw)["contents"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"document {doc_id}: the index stores {raw[:40]!r}..., expected JSON with 'contents'") from None


def _check_documents(source: str) -> None:
    if not has_documents(source):
        handler = _library().load(source).docs_handler()
        raise UserError(
            f"{source}: its documents are not on this machine: {_expected(handler, _own_copy(handler))}; put your copy "
            f"or a link there, or take the texts from a Lucene index that stores them (--first-stage.index)"
        )


def _own_copy(handler: Any) -> Path | None:
    """Where ir_datasets looks for documents that everybody must get from their owner; None where it downloads them."""
    util = _library().util
    source = getattr(handler, "_docs_dlc", None)
    if isinstance(source, util.Download) and all(isinstance(mirror, util.LocalDownload) for mirror in source.mirrors):
        return Path(source.path(force=False))
    return None


def _is_built(handler: Any) -> bool:
    built = getattr(handler.docs_store(), "built", None)
    return bool(built and built())


def _is_complete(handler: Any, place: Path) -> bool:
    if not place.exists():
        return False
    if handler._path_globs and place.is_dir() and handler._expected_file_count:
        found = sum(len(glob(str(place / pattern), recursive=True)) for pattern in handler._path_globs)  # noqa: PTH207
        if found != handler._expected_file_count:
            raise UserError(f"{place}: found {found} files of the collection; {_expected(handler, place)}")
    return True


def _expected(handler: Any, place: Path | None) -> str:
    globs = getattr(handler, "_path_globs", None)
    count = getattr(handler, "_expected_file_count", None)
    tree = f", with {count or 'the'} files that match {', '.join(globs)}, uncompressed" if globs else ""
    return f"expected {place}{tree}"


@contextlib.contextmanager
def _one_line(source: str, what: str, download: Any) -> Iterator[None]:
    """Turns what ir_datasets raises when data cannot be had into one line."""
    try:
        yield
    except (OSError, RuntimeError, EOFError, ValueError, AssertionError) as error:
        place = getattr(download, "_cache_path", None) or _library().util.home_path()
        raise UserError(
            f"{source}: its {what} cannot be had: looked for {place}, then {_reason(error)}; "
            f"connect to the network once, or put the file there (IR_DATASETS_HOME moves the folder)"
        ) from error


def _reason(error: BaseException) -> str:
    if len(error.args) == 2 and isinstance(error.args[1], list):  # one error for each mirror that was tried
        error = error.args[1][-1][1]
    if type(error).__module__.startswith("requests"):
        return f"the download failed ({type(error).__name__}: no network?)"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
