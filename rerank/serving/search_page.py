"""The page of `rerank serve` that searches a collection, and its JSON endpoint.

The page is a form and a list, without a script: it works in every browser and loads nothing. A query is sent in the
body of a POST, so that no address, history or log has it.
"""

import asyncio
import base64
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from rerank.data.queries import check_query
from rerank.data.types import Hit
from rerank.serving.bodies import Bodies, parse
from rerank.serving.dialects import fields
from rerank.serving.dialects.fields import convert, honoured
from rerank.serving.limits import Limits
from rerank.serving.refusals import ClientGoneError, Reason, RefusalError, log_error
from rerank.utils.errors import UserError
from rerank.utils.progress import log

HERE = Path(__file__).parent
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
    explain: Annotated[bool | None, honoured("Rank and score of each stage.")] = None


Search = Callable[[str, int], Sequence[Hit]]
"""Finds so many documents of a query, best first; its errors must not have the query in them."""


def page_routes(search: Search, collection: str) -> list[Route]:
    """The routes of the page and of its JSON endpoint.

    `GET /` is the form. `POST /` with the form's field `query` is the form with the hits. `POST /search` with
    `{"query": "…"}` gives `{"hits": [{"doc_id", "rank", "score", "title", "snippet"}], "answered_by": "…"}`: the name
    of the stage that ranked them. Title and snippet are `{"text", "marks"}`, and a mark is the begin and end of a word
    of the query, in characters.

    A request that is refused gets a line in the page, or `{"error": "…"}`, with the status of its reason (`Reason`):
    422 for an empty query, 429 where too many searches wait, 500 where a search fails. `search` is called in one thread
    of its own, for one query at a time, and may raise RefusalError; `collection` is the name that the page shows.
    """
    searches, bodies, page = _Searches(search), Bodies(Limits(max_body_bytes=LARGEST_BODY)), _Page(collection)

    async def form(request: Request) -> Response:
        return page.response()

    async def results(request: Request) -> Response:
        query = ""
        try:
            query = _form_query(await _read(request, bodies, "application/x-www-form-urlencoded"))
            return page.response(query, await searches.run(query, TOP))
        except RefusalError as refusal:
            return page.response(query, refusal=refusal)

    async def endpoint(request: Request) -> Response:
        try:
            asked: SearchRequest = convert(parse(await _read(request, bodies, "application/json")), SearchRequest, True)
            hits = await searches.run(asked.query, asked.top or TOP)
        except RefusalError as refusal:
            return JSONResponse({"error": str(refusal)}, refusal.reason.status, _headers(refusal))
        answer: dict[str, Any] = {"hits": [_as_json(hit, bool(asked.explain)) for hit in hits]}
        if hits:
            answer["answered_by"] = list(hits[0].stages)[-1]
        return JSONResponse(answer, headers=_headers())

    return [
        Route("/", form, methods=["GET"]),
        Route("/", results, methods=["POST"]),
        Route("/search", endpoint, methods=["POST"]),
    ]


class _Searches:
    """Runs searches one after the other, in one thread: Java keeps what it knows of a thread as long as that lives."""

    def __init__(self, search: Search) -> None:
        self._search = search
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._waiting = 0

    async def run(self, query: str, top: int) -> Sequence[Hit]:
        """The hits of a query; raises RefusalError."""
        try:
            check_query(query)
        except UserError as error:
            raise RefusalError(Reason.INVALID, str(error)) from None
        if self._waiting >= MOST_WAITING:
            raise RefusalError(Reason.OVERLOADED, f"{MOST_WAITING} searches are waiting; try again", RETRY_AFTER)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._search, query, top)
        except RefusalError:
            raise
        except UserError as error:
            log.error(f"a search failed: {error}")
        except Exception as error:
            log_error("a search failed", error)
        finally:
            self._waiting -= 1
        raise RefusalError(Reason.FAILED, "the search failed; the log of the server says why")


class _Page:
    """The page of a collection."""

    def __init__(self, collection: str) -> None:
        css = (HERE / "search.css").read_text(encoding="utf-8")
        environment = Environment(
            loader=FileSystemLoader(HERE),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._template = environment.get_template("search.html")
        self._values = {"collection": collection, "css": css}
        style = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
        self._policy = (
            f"default-src 'none'; img-src data:; style-src 'sha256-{style}'; form-action 'self'; base-uri 'none'; "
            "frame-ancestors 'none'"
        )

    def response(
        self, query: str = "", hits: Sequence[Hit] | None = None, refusal: RefusalError | None = None
    ) -> Response:
        """The page with the hits of a query, or with a line that says why there are none."""
        content = self._template.render(query=query, hits=hits, problem=str(refusal or ""), **self._values)
        status = refusal.reason.status if refusal else 200
        return HTMLResponse(content, status, _headers(refusal) | {"Content-Security-Policy": self._policy})


def _headers(refusal: RefusalError | None = None) -> dict[str, str]:
    headers = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
    return headers | ({"Retry-After": str(refusal.retry_after)} if refusal and refusal.retry_after else {})


async def _read(request: Request, bodies: Bodies, media_type: str) -> bytes:
    try:
        async with bodies.body(request, media_type) as body:
            return body
    except ClientGoneError:
        raise RefusalError(Reason.MALFORMED, "the body has no end") from None


def _form_query(body: bytes) -> str:
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=8)
    except ValueError:
        raise RefusalError(Reason.MALFORMED, "expected a form with the field query, in UTF-8") from None
    return fields.get("query", [""])[0]


def _as_json(hit: Hit, explain: bool) -> dict[str, Any]:
    about = {**hit._asdict(), "title": hit.title._asdict(), "snippet": hit.snippet._asdict()}
    stages = about.pop("stages")
    if explain:
        about["stages"] = {name: {"rank": rank, "score": score} for name, (rank, score) in stages.items()}
    return about
