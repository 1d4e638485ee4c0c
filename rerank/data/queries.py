"""Queries from a file."""

from collections.abc import Iterator
from pathlib import Path

from rerank.data.ids import check_id
from rerank.data.text_lines import read_lines
from rerank.utils.errors import UserError
from rerank.utils.json_files import keys_shown, parse_json, shown

ID_KEYS = ("_id", "query_id", "qid", "id")
TEXT_KEYS = ("text", "query")
LONGEST_LINE = 2**24
"""Bytes of the line of a query."""
EXPECTED = (
    "lines of a query's id, a tab and its text, or of JSON objects with one of the keys "
    f"{', '.join(ID_KEYS)} and one of {', '.join(TEXT_KEYS)}"
)


def read_queries(path: str | Path, field: str = "") -> dict[str, str]:
    """Reads query_id to text from a file, gzipped or not, in the file's order.

    A file whose first character is { has JSON objects, one a line; any other has an id, a tab and a text in each line.
    Empty lines are skipped. `field` is the key of the text in JSON objects. Raises UserError with file and line for a
    line that is malformed, an id that is empty, has white space or occurs twice; and for a file that is missing,
    damaged or without queries.
    """
    queries: dict[str, str] = {}
    parse = None
    for where, line in _lines(path):
        parse = parse or (_parse_json if line.lstrip().startswith("{") else _parse_tsv)
        if field and parse is _parse_tsv:
            raise UserError(f"--collection.query-field {field}: {path} has no fields, as its lines are no JSON objects")
        query_id, text = parse(line, where, field)
        check_id(query_id, where, "the query id")
        if query_id in queries:
            raise UserError(f"{where}: the query {query_id} occurs a second time; expected each id once")
        queries[query_id] = text
    if not queries:
        raise UserError(f"{path}: has no query; expected {EXPECTED}")
    return queries


def _lines(path: str | Path) -> Iterator[tuple[str, str]]:
    """Each line that is not empty, with its place as file:line."""
    for number, line in enumerate(read_lines(path, EXPECTED, LONGEST_LINE), 1):
        try:
            text = line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise UserError(f"{path}:{number}: expected UTF-8 ({error})") from error
        if text.strip():
            yield f"{path}:{number}", text


def _parse_tsv(line: str, where: str, _field: str) -> tuple[str, str]:
    query_id, tab, text = line.partition("\t")
    if not tab:
        raise UserError(f"{where}: expected a query's id, a tab and its text, got {line[:60]!r}")
    return query_id, text


def _parse_json(line: str, where: str, field: str) -> tuple[str, str]:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise UserError(f"{where}: {error}; expected an object on one line") from None
    if not isinstance(record, dict):
        raise UserError(f"{where}: expected a JSON object, got {line[:60]!r}")
    values = []
    for keys in (ID_KEYS, (field,) if field else TEXT_KEYS):
        key = next((key for key in keys if key in record), None)
        value = record.get(key) if key is not None else None
        if not isinstance(value, str):
            got = f"none (the keys are {keys_shown(record)})" if key is None else shown(value)
            raise UserError(f"{where}: expected a text under {' or '.join(map(repr, keys))}, got {got}")
        values.append(value)
    return values[0], values[1]


def check_query(query: str) -> None:
    """Raises UserError for a query without text, and for one that is not Unicode."""
    if not query.strip():
        raise UserError("query: is empty; expected a text to search for")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise UserError("query: is not Unicode text; expected UTF-8") from None
