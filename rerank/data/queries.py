"""Queries from a file."""

from pathlib import Path

from rerank.data.text_lines import check_id, parse_object, read_lines, text_under
from rerank.utils.errors import UserError

EXPECTED = 'lines of a query\'s id, a tab and its text, or of {"_id": …, "text": …}'


def read_queries(path: str | Path, id_key: str = "_id", text_key: str = "text") -> dict[str, str]:
    """Reads query_id to text from a file, gzipped or not, in the file's order.

    A file whose first character is { has JSON objects with these keys, one a line, as BEIR's queries.jsonl; any other
    has an id, a tab and a text in each line. Empty lines are skipped. Raises UserError with file and line for a line
    that is malformed, an id that is empty, has white space or occurs twice; and for a file that is missing, damaged or
    without queries.
    """
    queries: dict[str, str] = {}
    is_json = None
    for place, _, line in read_lines(path, EXPECTED):
        is_json = line.lstrip().startswith(b"{") if is_json is None else is_json
        if is_json:
            record = parse_object(line, place, "a JSON object on one line")
            query_id, text = (text_under(record, key, place) for key in (id_key, text_key))
        else:
            query_id, text = _parse_tsv(line, place)
        check_id(query_id, place, "the query id")
        if query_id in queries:
            raise UserError(f"{place}: the query {query_id} occurs a second time; expected each id once")
        queries[query_id] = text
    if not queries:
        raise UserError(f"{path}: has no query; expected {EXPECTED}")
    return queries


def _parse_tsv(line: bytes, place: str) -> tuple[str, str]:
    try:
        text = line.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: expected UTF-8 ({error})") from error
    query_id, tab, text = text.partition("\t")
    if not tab:
        raise UserError(f"{place}: expected a query's id, a tab and its text, got {query_id[:60]!r}")
    return query_id, text


def check_query(query: str) -> None:
    """Raises UserError for a query without text, and for one that is not Unicode."""
    if not query.strip():
        raise UserError("query: is empty; expected a text to search for")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise UserError("query: is not Unicode text; expected UTF-8") from None
