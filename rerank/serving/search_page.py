"""The page of `rerank serve` that searches a collection, and its JSON endpoint.

The page is a form and a list, whose hits open to whole documents, without a script: it works in every browser. The
address of a search has its query, so that it can be shared and gone back to; no log has it, and the page sends no
address to other sites.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rerank.data.queries import check_query
from rerank.data.types import Hit
from rerank.serving.bodies import Bodies, parse
from rerank.serving.dialects import fields
from rerank.serving.dialects.fields import convert, honoured
from rerank.serving.limits import Limits
from rerank.serving.pages import page
from rerank.serving.refusals import ClientGoneError, Reason, RefusalError, log_error
from rerank.utils.errors import UserError
from rerank.utils.progress import log

LARGEST_BODY = 2**16
"""Bytes of a request; of a query, the model reads half of its input length at most."""
MOST_WAITING = 16
"""Searches that may wait or run at once."""
RETRY_AFTER = 1
"""Seconds after which other searches may have ended."""

TOP, MOST = 10, 1000
"""The documents that a search shows, and the most that it can be asked for."""


class SearchRequest(fields.Request):
    """What `POST /search` asks; other fields are passed over."""

    query: Annotated[str, honoured("The query.")]
    top: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MOST)] | None, honoured(f"The number of hits, {TOP} by default.")
    ] = None
    explain: Annotated[bool | None, honoured("Rank and score of each stage, and matched words.")] = None


class Search(Protocol):
    """Finds the best documents of a query; its errors must not have the query in them."""

    def __call__(self, query: str, top: int, *, explain: bool) -> Sequence[Hit]:
        """The best `top` documents, best first, with their matches if it is to explain them."""


def page_routes(search: Search, collection: str) -> list[Route]:
    """The routes of the page and of its JSON endpoint.

    `GET /` is the form, and `GET /?query=…` the form with the hits; `&from=11` shows those from the eleventh on.
    `POST /search` with `{"query": "…"}` gives `{"hits": [{"doc_id", "rank", "score", "title", "snippet"}],
    "answered_by": "…"}`: the name of the stage that ranked them. Title and snippet are `{"text", "marks"}`, and a mark
    is the begin and end of a word of the query, in characters.

    A request that is refused gets a line in the page, or `{"error": "…"}`, with the status of its reason (`Reason`):
    422 for an empty query, 429 where too many searches wait, 500 where a search fails. `search` is called in one thread
    of its own, for one query at a time, and may raise RefusalError; `collection` is the name that the page shows.
    """
    searches, bodies = _Searches(search), Bodies(Limits(max_body_bytes=LARGEST_BODY))

    async def results(request: Request) -> Response:
        query = request.query_params.get("query")
        shown: dict[str, Any] = {"collection": collection, "query": query or "", "hits": None, "problem": ""}
        if query is None:
            return page("search.html", headers=_headers(), **shown)
        try:
            first = _first(request.query_params.get("from", "1"))
            found = await searches.run(query, first + TOP, True)
        except RefusalError as refusal:
            status, headers = refusal.reason.status, _headers(refusal)
            return page("search.html", status, headers, **shown | {"problem": str(refusal)})
        shown |= {
            "hits": found[first - 1 :][:TOP],
            "first": first,
            "before": max(1, first - TOP) if first > 1 else None,
            "after": first + TOP if len(found) >= first + TOP else None,
        }
        return page("search.html", headers=_headers(), **shown)

    async def endpoint(request: Request) -> Response:
        try:
            asked: SearchRequest = convert(parse(await _read(request, bodies)), SearchRequest, True)
            hits = await searches.run(asked.query, asked.top or TOP, bool(asked.explain))
        except RefusalError as refusal:
            return JSONResponse({"error": str(refusal)}, refusal.reason.status, _headers(refusal))
        answer: dict[str, Any] = {"hits": [_as_json(hit, bool(asked.explain)) for hit in hits]}
        if hits:
            answer["answered_by"] = list(hits[0].stages)[-1]
        return JSONResponse(answer, headers=_headers())

    return [
        Route("/", results, methods=["GET"]),
        Route("/search", endpoint, methods=["POST"]),
    ]


class _Searches:
    """Runs searches one after the other, in one thread: Java keeps what it knows of a thread as long as that lives."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._waiting = 0

    async def run(self, query: str, top: int, explain: bool) -> Sequence[Hit]:
        """The hits of a query; raises RefusalError."""
        try:
            check_query(query)
        except UserError as error:
            raise RefusalError(Reason.INVALID, str(error)) from None
        if self._waiting >= MOST_WAITING:
            raise RefusalError(Reason.OVERLOADED, f"{MOST_WAITING} searches are waiting; try again", RETRY_AFTER)
        self._waiting += 1
        try:
            search = partial(self._search, query, top, explain=explain)
            return await asyncio.get_running_loop().run_in_executor(self._thread, search)
        except RefusalError:
            raise
        except UserError as error:
            log.error(f"a search failed: {error}")
        except Exception as error:
            log_error("a search failed", error)
        finally:
            self._waiting -= 1
        raise RefusalError(Reason.FAILED, "the search failed; the log of the server says why")


def _headers(refusal: RefusalError | None = None) -> dict[str, str]:
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
    return headers | ({"Retry-After": str(refusal.retry_after)} if refusal and refusal.retry_after else {})


async def _read(request: Request, bodies: Bodies) -> bytes:
    try:
        async with bodies.body(request) as body:
            return body
    except ClientGoneError:
        raise RefusalError(Reason.MALFORMED, "the body has no end") from None


def _first(text: str) -> int:
    """The rank of the first hit that a page shows; raises RefusalError for what is none."""
    if not text.isdecimal() or len(text) > len(str(MOST)) or not 1 <= int(text) <= MOST:
        raise RefusalError(Reason.INVALID, f"from: expected a whole number from 1 to {MOST}")
    return int(text)


def _as_json(hit: Hit, explain: bool) -> dict[str, Any]:
    about = {**hit._asdict(), "title": hit.title._asdict(), "snippet": hit.snippet._asdict()}
    stages, matches, _ = about.pop("stages"), about.pop("matches"), about.pop("text")
    if explain:
        about["stages"] = {name: {"rank": rank, "score": score} for name, (rank, score) in stages.items()}
        about["matches"] = dict(matches)
    return about
