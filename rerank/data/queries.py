"""Queries from a file, or from another field of a collection's queries, in the place of the collection's own."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.data.ids import check_id
from rerank.data.json_lines import parse_object, read_filled_lines, text_under
from rerank.data.splits import Splits
from rerank.data.types import Document, Judgments
from rerank.utils.errors import UserError

if TYPE_CHECKING:
    from rerank.data.collections import Collection

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
    is_json = None
    for place, _, line in read_filled_lines(path, EXPECTED, LONGEST_LINE):
        is_json = line.lstrip().startswith(b"{") if is_json is None else is_json
        if field and not is_json:
            raise UserError(f"--collection.query-field {field}: {path} has no fields, as its lines are no JSON objects")
        query_id, text = _parse_json(line, place, field) if is_json else _parse_tsv(line, place)
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


def _parse_json(line: bytes, place: str, field: str) -> tuple[str, str]:
    record = parse_object(line, place, "a JSON object on one line")
    return text_under(record, ID_KEYS, place), text_under(record, (field,) if field else TEXT_KEYS, place)


@dataclass(frozen=True)
class WithQueries:
    """A collection with other queries; see `Collection` for its attributes. Documents and judgments are its own.

    `file` is read by `read_queries`. `field` is a field of the file's JSON objects, or of the collection's queries if
    there is no file.
    """

    collection: "Collection"
    file: str = ""
    field: str = ""

    @functools.cached_property
    def queries(self) -> dict[str, str]:
        """query_id to text, of every query."""
        return read_queries(self.file, self.field) if self.file else self.collection.query_texts(self.field)

    def query_texts(self, field: str) -> dict[str, str]:
        """The texts of another field."""
        return WithQueries(self.collection, self.file, field).queries

    def expect_queries(self, query_ids: Iterable[str]) -> None:
        """Raises UserError if one of these queries, which are judged, has no text."""
        wanted = list(query_ids)
        if missing := [query_id for query_id in wanted if query_id not in self.queries]:
            raise UserError(
                f"{self.file or self.source}: has no text of {len(missing)} of the {len(wanted)} judged queries, such "
                f"as {missing[0]}; training and evaluation need all of them: add them to the file"
            )

    @property
    def source(self) -> str:
        """The collection's source."""
        return self.collection.source

    @property
    def name(self) -> str:
        """The collection's name."""
        return self.collection.name

    @property
    def qrels(self) -> Judgments:
        """The collection's judgments."""
        return self.collection.qrels

    @property
    def official_folds(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The collection's folds."""
        return self.collection.official_folds

    @property
    def splits(self) -> Splits:
        """The collection's split."""
        return self.collection.splits

    @property
    def fingerprint(self) -> str:
        """The collection's fingerprint: it is one of the documents."""
        return self.collection.fingerprint

    @property
    def has_documents(self) -> bool:
        """Whether the collection's documents can be had."""
        return self.collection.has_documents

    def expect_judgments(self) -> None:
        """Raises UserError if the collection has no judgments."""
        self.collection.expect_judgments()

    def count(self) -> int:
        """The number of documents."""
        return self.collection.count()

    def documents(self) -> Iterator[Document]:
        """Every document."""
        return self.collection.documents()

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """These documents, in the order asked."""
        return self.collection.get(doc_ids)


def check_query(query: str) -> None:
    """Raises UserError for a query without text, and for one that is not Unicode."""
    if not query.strip():
        raise UserError("query: is empty; expected a text to search for")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise UserError("query: is not Unicode text; expected UTF-8") from None
