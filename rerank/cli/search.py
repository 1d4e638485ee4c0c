"""`rerank search`: prints the best documents for a query, by a pipeline or a trained model."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json import dumps as json_of
from typing import Annotated

from cyclopts import Parameter

from rerank.cli.arguments import Model, SearchFlags
from rerank.data.queries import check_query, read_queries
from rerank.data.types import Hit, Marked
from rerank.utils.errors import UserError, escaped
from rerank.utils.parameters import OptionalPath, Whole, at_least
from rerank.utils.progress import log

INDENT = " " * 6
"""The indentation of snippets."""

NO_BREAK = "\u00a0"
"""A space at which lines are not broken."""


@Parameter(name="*")
@dataclass(frozen=True)
class SearchOptions:
    """What is asked, and what is shown."""

    queries: OptionalPath = None
    """A file of queries, TSV (id, tab, text), JSONL or TREC topics, which are searched one after the other."""
    top: Annotated[Whole, at_least(1)] = 10
    """How many documents to show."""
    json: Annotated[bool, Parameter(negative=())] = False
    """Print a JSON object a line for each query, as `POST /search` of `rerank serve` answers."""
    explain: Annotated[bool, Parameter(negative=())] = False
    """Show the rank and the score of each document in each stage, and the words that late interaction matched."""


def search(
    model: Model,
    query: str | None = None,
    *,
    options: SearchOptions = SearchOptions(),
    flags: SearchFlags = SearchFlags(),
) -> None:
    """Searches a collection with a fitted pipeline, or with a cross-encoder that re-ranks BM25's candidates.

    Parameters
    ----------
    query
        The text of the query.
    """
    queries, explain = options.queries, options.explain
    if (query is None) == (queries is None):
        got = "both" if queries else "neither"
        raise UserError(f"search {model}: expected a query, or --queries, a file of queries; got {got}")
    asked = read_queries(queries) if queries else {"": check_query(query)}
    if empty := next((query_id for query_id, text in asked.items() if not text.strip()), None):
        raise UserError(f"{queries}: the query {empty} is empty; expected a text to search for")
    from rerank.pipelines.open import open_pipeline

    pipeline = open_pipeline(model, flags.config())
    for query_id, text in asked.items():
        found = pipeline.find(text, options.top, explain=explain)
        if options.json:
            asked_as = {"query_id": query_id} if queries else {}
            print(json_of({**asked_as, "query": text, **found.to_dict(explain)}), flush=True)
            continue
        if queries:
            print(f"{escaped(query_id)}: {escaped(text)}")
        if not found.hits:
            log.info("no document has a word of the query; stop words do not count")
        if found.note:
            log.info(found.note)
        _print(found.hits, list(pipeline.stages) if explain else ())


def _print(hits: Sequence[Hit], stages: Sequence[str]) -> None:
    """Prints the hits; a terminal gets colours."""
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    around, width = ("\033[1;33m", "\033[0m") if colour else ("*", "*"), shutil.get_terminal_size((100, 24)).columns
    for line in hit_lines(hits, max(width, 40), around, stages):
        print(line)


def hit_lines(hits: Sequence[Hit], width: int, around: tuple[str, str], stages: Sequence[str] = ()) -> Iterator[str]:
    """The lines of the hits; snippets are broken at `width` characters, `around` goes before and after a marked word.

    With `stages`, a line has the rank and, in brackets, the score in each stage, and another line the matching words.
    """
    if not hits:
        return
    rows = [["rank", "score"], *([f"{hit.rank}", f"{hit.score:.4f}"] for hit in hits)]
    rank, score = (max(map(len, column)) for column in zip(*rows, strict=True))
    yield f"{'rank':>{rank}}  {'score':>{score}}  document"
    for hit in hits:
        title = f"  {_marked(hit.title, around)}" if hit.title.text else ""
        yield f"{hit.rank:>{rank}}  {hit.score:>{score}.4f}  {escaped(hit.doc_id)}{title}"
        for line in _broken(hit.snippet, width - len(INDENT)):
            yield INDENT + _marked(line, around)
        if stages:
            found = [(name, *hit.stages[name]) for name in stages if name in hit.stages]
            yield from _listed("stages", [f"{name} {place} ({value:.4f})" for name, place, value in found], width)
            yield from _listed("matched", [f"{word} → {match}" for word, match in hit.matches], width)


def _listed(what: str, items: Sequence[str], width: int) -> Iterator[str]:
    """The items in lines that are broken only between items; no line without items."""
    text = ", ".join(escaped(item).replace(" ", NO_BREAK) for item in items)
    for line in textwrap.wrap(f"{what}: {text}" if items else "", width - len(INDENT), break_on_hyphens=False):
        yield INDENT + line.replace(NO_BREAK, " ")


def _marked(text: Marked, around: tuple[str, str]) -> str:
    before, after = around
    pieces = ((escaped(piece), is_mark) for piece, is_mark in text.parts())
    return "".join(f"{before}{piece}{after}" if is_mark else piece for piece, is_mark in pieces)


def _broken(text: Marked, width: int) -> Iterator[Marked]:
    """The text in lines, broken at single spaces; the marks of a line are within it."""
    begin = 0
    for line in textwrap.wrap(text.text, width, break_long_words=False, break_on_hyphens=False):
        end = begin + len(line)
        yield text.cut(begin, end)
        begin = end + 1
