"""The searches of `rerank serve`: a page, and JSON at `/search`.

The page is a form and a list of hits that open to whole documents; it has no script, so it works in every browser. The
URL of a search has the query, so that it can be shared and bookmarked. No log has the query, and the page loads nothing
from other sites and sends them no referrer.
"""

import asyncio
import base64
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from rerank.data.queries import check_query
from rerank.data.types import Found
from rerank.serving.metrics import Metrics
from rerank.serving.requests import Body, Limits, RefusalError, convert, log_error, respond
from rerank.utils.errors import UserError
from rerank.utils.progress import log

TOP = 10
"""Documents of a page, and the default of a search."""

MOST = 1000
"""Most documents that a search may ask for."""

LARGEST_BODY = 2**16
"""Bytes of a request; the model reads a query up to half of its input length, which is far less."""

MOST_WAITING = 16
"""Most searches that wait or run at the same time."""

FOLDER = Path(__file__).parent
CSS = (FOLDER / "search.css").read_text(encoding="utf-8")
STYLE = base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": f"default-src 'none'; img-src data:; style-src 'sha256-{STYLE}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
}
"""The headers of a page."""
TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


def page(template: str, shown: dict[str, object], refusal: RefusalError | None = None) -> Response:
    """A page of a template in this folder, with the status of a refusal if there is one."""
    content = TEMPLATES.get_template(template).render(shown, css=CSS)
    return HTMLResponse(content, refusal.status if refusal else 200, HEADERS | (refusal.headers if refusal else {}))


class PageRequest(msgspec.Struct, rename={"first": "from"}):
    """`GET /?query=…&from=11`: the rank of the first hit that the page shows."""

    first: Annotated[int, msgspec.Meta(ge=1, le=MOST)] = 1


class SearchRequest(msgspec.Struct):
    """`POST /search`; `explain` adds the rank and score in each stage, and the words that match."""

    query: str
    top: Annotated[int, msgspec.Meta(ge=1, le=MOST)] = TOP
    explain: bool = False


class Searches:
    """Searches a collection in one thread, one query after the other; Java keeps data for each thread that calls it.

    `find(query, top, explain=)` finds documents; it may raise RefusalError, and its errors must not contain the query.
    `collection` is the name that the page shows; `note` gives what `/health` says of its documents.
    """

    def __init__(
        self,
        find: Callable[..., Found],
        collection: str,
        metrics: Metrics,
        note: Callable[[], str] = lambda: "",
    ) -> None:
        self.respond = partial(respond, self.answer, Limits(max_body_bytes=LARGEST_BODY, flag=""), metrics)
        self.note = note
        self.collection, self._find = collection, find
        self._thread, self._waiting = ThreadPoolExecutor(1, thread_name_prefix="search"), 0

    def stop(self) -> None:
        """Waits for the submitted searches, and ends the thread."""
        self._thread.shutdown()

    async def page(self, request: Request) -> Response:
        """The form, with the hits of a query if there is one.

        A refused request gets the page with a line that gives the reason: status 422 for an empty query, 429 if too
        many searches wait, 500 if a search fails.
        """
        query = request.query_params.get("query")
        if query is None:
            return self._page()
        try:
            first = convert(dict(request.query_params), PageRequest).first
            found = await self._found(query, first + TOP, True)
        except RefusalError as refusal:
            return self._page(query, refusal)
        before = max(1, first - TOP) if first > 1 else None
        after = first + TOP if len(found.hits) >= first + TOP <= MOST else None
        shown = found.hits[first - 1 :][:TOP]
        return self._page(query, found=found, hits=shown, first=first, before=before, after=after)

    def _page(self, query: str = "", refusal: RefusalError | None = None, **found: object) -> Response:
        shown = {"collection": self.collection, "query": query, "problem": str(refusal or ""), "found": None, **found}
        return page("search.html", shown, refusal)

    async def answer(self, path: str, body: Body) -> object:
        """{hits: [{doc_id, rank, score, title, snippet}], total, answered_by?, note?}; raises RefusalError.

        Title and snippet are {text, marks}; a mark has the start and end of a word of the query, in characters.
        """
        asked = convert(body, SearchRequest)
        found = await self._found(asked.query, asked.top, asked.explain)
        return found.to_dict(asked.explain)

    async def _found(self, query: str, top: int, explain: bool) -> Found:
        """What a query finds; raises RefusalError."""
        try:
            check_query(query)
        except UserError as error:
            raise RefusalError(422, str(error)) from None
        if self._waiting >= MOST_WAITING:
            raise RefusalError(429, f"the queue is full: {MOST_WAITING} searches wait, which is the limit; try again")
        self._waiting += 1
        search = partial(self._find, query, top, explain=explain)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, search)
        except RefusalError:
            raise
        except UserError as error:
            log.error(f"a search failed: {error}")
        except Exception as error:
            log_error("a search failed", error)
        finally:
            self._waiting -= 1
        raise RefusalError(500, "the search failed; the log of the server says why")
