"""Reads the queries of a file: lines of an id and a text, JSON objects, or TREC topics."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from rerank.data.text_lines import check_id, parse_object, read_lines, text_under
from rerank.utils.errors import UserError
from rerank.utils.texts import check_text

EXPECTED = 'lines of a query\'s id, a tab and its text, or of {"_id": …, "text": …}, or TREC topics (<top> …)'

MARK = re.compile(r"(</?top>)")
"""The beginning or the end of one of TREC's topics."""

TAG = re.compile(r"(</?(?:num|head|dom|title|desc|smry|narr|con|fac|nat|def)>)")
"""The beginning or the end of a field of a topic; most fields have no end."""

TITLES = re.compile(r"^\s*(Number|Topic|Description|Narrative)\s*:")
"""What stands before the text of a field in TREC topics."""

TOPIC_FIELDS = {"num": "id", "desc": "description", "narr": "narrative"}
"""Tag of a field in TREC topics -> its name, where they differ; the names are those of ir_datasets."""

Line = tuple[str, int, bytes]
"""What `read_lines` yields: the place as file:line, the first byte in the file, and the bytes."""

Query = tuple[str, str, str]
"""The place as file:line, the id and the text."""


def read_queries(path: str | Path, id_key: str = "_id", fields: Sequence[str] = ()) -> dict[str, str]:
    """Reads query_id -> text from a file, gzipped or not, in the file's order.

    The first line decides. If its first character is {, each line is a JSON object with the id under `id_key`, as in
    BEIR's queries.jsonl; the text is under "text", or under the keys `fields`, joined by a space. If it begins with
    <top>, the file has TREC topics; the text is the title, or `fields` of title, description and narrative. Otherwise
    each line has an id, a tab and a text, and no fields. Empty lines are skipped. Raises UserError with file and line
    for a malformed line or topic and for an id that is empty, has white space or occurs twice. Raises UserError for a
    file that is missing, damaged or without queries.
    """
    lines = read_lines(path, EXPECTED)
    first = next(lines, None)
    if first is None:
        raise UserError(f"{path}: has no query; expected {EXPECTED}")
    lines, begin = chain([first], lines), first[2].lstrip()
    if begin.startswith(b"{"):
        found = _read_objects(lines, id_key, fields or ["text"])
    elif begin.startswith(b"<top>"):
        found = _read_topics(lines, fields or ["title"])
    else:
        found = _read_rows(lines, fields)
    queries: dict[str, str] = {}
    for place, query_id, text in found:
        check_id(query_id, place, "the query id")
        if query_id in queries:
            raise UserError(f"{place}: the query {query_id} occurs a second time; expected each id once")
        queries[query_id] = text
    return queries


def check_query(query: object) -> str:
    """Returns the query as a plain str. Raises UserError for one without text, and as `check_text`."""
    text = check_text("query", query)
    if not text.strip():
        raise UserError("query: is empty; expected a text to search for")
    return text


def _read_objects(lines: Iterable[Line], id_key: str, fields: Sequence[str]) -> Iterator[Query]:
    for place, _, line in lines:
        record = parse_object(line, place, "a JSON object on one line")
        texts = (text_under(record, key, place) for key in fields)
        yield place, text_under(record, id_key, place), " ".join(filter(None, texts))


def _read_rows(lines: Iterable[Line], fields: Sequence[str]) -> Iterator[Query]:
    for place, _, line in lines:
        if fields:
            raise UserError(
                f"{place}: --collection.query-field {'+'.join(fields)}: expected a JSON object with these keys on each "
                "line, or TREC topics, got lines of an id, a tab and a text"
            )
        query_id, tab, text = _decoded(line, place).removesuffix("\n").removesuffix("\r").partition("\t")
        if not tab:
            raise UserError(f"{place}: expected a query's id, a tab and its text, got {query_id[:60]!r}")
        yield place, query_id, text


def _read_topics(lines: Iterable[Line], fields: Sequence[str]) -> Iterator[Query]:
    start = topic = ""
    for place, _, line in lines:
        for part in MARK.split(_decoded(line, place)):
            if not MARK.fullmatch(part):
                topic += part
                continue
            if (part == "<top>") == bool(start):
                expected = f"the topic of {start} to end first" if start else "<top> first"
                raise UserError(f"{place}: expected {expected}, got {part}")
            if start:
                yield start, *_id_and_text(topic, fields, start)
            start, topic = "" if start else place, ""
    if start:
        raise UserError(f"{start}: the topic has no end; expected </top> after it")


def _id_and_text(topic: str, fields: Sequence[str], place: str) -> tuple[str, str]:
    """The id of a topic, and the text of its fields."""
    parts = TAG.split(topic)
    texts: dict[str, str] = {}
    for tag, text in zip(parts[1::2], parts[2::2], strict=True):
        if not tag.startswith("</"):
            name = TOPIC_FIELDS.get(tag[1:-1], tag[1:-1])
            texts[name] = texts.get(name, "") + text
    for name in ("id", *fields):
        if name not in texts:
            raise UserError(f"{place}: the topic has no {name}; its fields are {', '.join(texts) or 'none'}")
    query_id, *found = (" ".join(TITLES.sub("", texts[name]).split()) for name in ("id", *fields))
    return query_id, " ".join(filter(None, found))


def _decoded(line: bytes, place: str) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: expected UTF-8 ({error})") from error
