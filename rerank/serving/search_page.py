"""The searches of `rerank serve`: a page, and JSON at `/search`.

The page is a form and a list, whose hits open to whole documents, without a script: it works in every browser. The
address of a search has its query, so that it can be shared and gone back to; no log has it, and the page sends no
address to other sites.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from rerank.data.queries import check_query
from rerank.data.types import Hit
from rerank.serving.dialects import Dialect
from rerank.serving.dialects.fields import Body
from rerank.serving.dialects.search import MOST, TOP, Found, SearchRequest
from rerank.serving.limits import Limits
from rerank.serving.metrics import Metrics
from rerank.serving.pages import page
from rerank.serving.refusals import Reason, RefusalError, log_error
from rerank.serving.responses import OneByOne
from rerank.utils.errors import UserError
from rerank.utils.progress import log

LARGEST_BODY = 2**16
"""Bytes of a request; of a query, the model reads half of its input length at most."""
MOST_WAITING = 16
"""Searches that may wait or run at once."""
HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
"""Those of the page."""


class Search(Protocol):
    """Finds the best documents of a query; its errors must not have the query in them."""

    def __call__(self, query: str, top: int, *, explain: bool) -> Sequence[Hit]:
        """The best `top` documents, best first, with their matches if it is to explain them."""


class Searches(OneByOne):
    """Searches a collection, one query after the other: Java keeps what it knows of a thread as long as that lives.

    `search` may raise RefusalError; `collection` is the name that the page shows.
    """

    def __init__(self, search: Search, collection: str, metrics: Metrics) -> None:
        limits = Limits(max_body_bytes=LARGEST_BODY, max_documents=MOST_WAITING, max_queue=MOST_WAITING)
        super().__init__(limits, metrics)
        self._search, self._collection = search, collection

    async def page(self, request: Request) -> Response:
        """`GET /` is the form, `GET /?query=…` the form with the hits; `&from=11` shows those from the eleventh on.

        A request that is refused gets a line in the page, with the status of its reason: 422 for an empty query, 429
        where too many searches wait, 500 where a search fails.
        """
        query = request.query_params.get("query")
        shown: dict[str, Any] = {"collection": self._collection, "query": query or "", "hits": None, "problem": ""}
        if query is None:
            return page("search.html", headers=HEADERS, **shown)
        try:
            first = _first(request.query_params.get("from", "1"))
            found = await self._find(query, first + TOP, True)
        except RefusalError as refusal:
            shown["problem"] = str(refusal)
            return page("search.html", refusal.reason.status, HEADERS | refusal.headers, **shown)
        shown |= {
            "hits": found[first - 1 :][:TOP],
            "first": first,
            "before": max(1, first - TOP) if first > 1 else None,
            "after": first + TOP if len(found) >= first + TOP else None,
        }
        return page("search.html", headers=HEADERS, **shown)

    async def answer(self, dialect: Dialect, body: Body) -> Any:
        """The JSON of the answer to a request; raises RefusalError."""
        asked: SearchRequest = dialect.read(body)
        hits = await self._find(asked.query, asked.top or TOP, bool(asked.explain))
        return dialect.answer(Found(hits, bool(asked.explain)))

    async def _find(self, query: str, top: int, explain: bool) -> Sequence[Hit]:
        """The hits of a query; raises RefusalError."""
        try:
            check_query(query)
        except UserError as error:
            raise RefusalError(Reason.INVALID, str(error)) from None
        try:
            return await self.run(partial(self._search, query, top, explain=explain))
        except RefusalError:
            raise
        except UserError as error:
            log.error(f"a search failed: {error}")
        except Exception as error:
            log_error("a search failed", error)
        raise RefusalError(Reason.FAILED, "the search failed; the log of the server says why")


def _first(text: str) -> int:
    """The rank of the first hit that a page shows; raises RefusalError for what is none."""
    if not text.isdecimal() or len(text) > len(str(MOST)) or not 1 <= int(text) <= MOST:
        raise RefusalError(Reason.INVALID, f"from: expected a whole number from 1 to {MOST}")
    return int(text)
