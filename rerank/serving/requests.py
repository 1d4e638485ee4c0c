"""Requests: what they may take, how their bodies are read, and how each is answered or refused."""

import asyncio
import time
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from rerank.serving.metrics import Metrics
from rerank.utils.progress import log

DISCARDED = 4
"""A body is read to its end, so that the client reads the refusal, up to so many times the limit."""
KINDS = {429: "Overloaded", 500: "Backend", 503: "Unhealthy"}
"""What TEI calls errors with these statuses; others are "Validation"."""
HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}
"""Status -> headers of a refusal; after a second a full queue may have space."""

Body = dict[str, Any]
"""The JSON object of a request."""
Answer = Callable[[str, Body], Coroutine[Any, Any, Any]]
"""(path, body) -> the JSON of the answer to a request, or RefusalError; cancelled if the client goes away."""
Fields = TypeVar("Fields", bound=msgspec.Struct)


class RefusalError(Exception):
    """A request that gets no answer: the HTTP status, and a line that says what was wrong and what is expected.

    The line never contains a query or a document. `kind` is what TEI calls the error.
    """

    def __init__(self, status: int, line: str, kind: str = "") -> None:
        super().__init__(line)
        self.status, self.kind, self.headers = status, kind or KINDS.get(status, "Validation"), HEADERS.get(status, {})

    def response(self) -> JSONResponse:
        """The line where the clients of TEI (`error`), Jina (`detail`) and Cohere (`message`) look for it."""
        line = str(self)
        body = {"error": line, "error_type": self.kind, "detail": line, "message": line}
        return JSONResponse(body, self.status, self.headers)


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    max_body_bytes: the bytes of a request; max_documents: its documents; max_queue: the documents of all requests that
    wait or are being scored; body_seconds: the seconds in which a body must arrive.
    """

    max_body_bytes: int = 16 * 2**20
    max_documents: int = 1000
    max_queue: int = 10_000
    body_seconds: float = 60.0


async def read_body(request: Request, limits: Limits) -> bytes:
    """The whole body of a request.

    Raises RefusalError if it has another type, is too large or late, and ClientDisconnect if its end never comes.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusalError(415, "Content-Type: expected application/json")
    limit, body, size = limits.max_body_bytes, bytearray(), 0
    too_large = RefusalError(413, f"the body has over {limit} bytes, the limit (--max-body-mib)")
    if int(request.headers.get("content-length", "0")) > DISCARDED * limit:
        raise too_large
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > DISCARDED * limit:
                    break
                if size <= limit:
                    body += part
    except TimeoutError:
        raise RefusalError(408, f"the body did not arrive in {limits.body_seconds:g} s") from None
    if size > limit:
        raise too_large
    return bytes(body)


def parse(body: bytes) -> Body:
    """The JSON object of a body; raises RefusalError for anything else."""
    try:
        return msgspec.json.decode(body, type=Body)
    except (ValueError, RecursionError) as error:  # the message has no part of the body in it
        raise RefusalError(400, f"the body is not a JSON object in UTF-8: {error}") from None


def convert(body: Body, kind: type[Fields]) -> Fields:
    """The fields of a JSON object; "true" may be a boolean and "3" a number.

    Raises RefusalError, which names the field and never has its value.
    """
    try:
        return msgspec.convert(body, kind, strict=False)
    except msgspec.ValidationError as error:  # such as "Expected `str`, got `int` - at `$.query`"
        reason, _, place = str(error).partition(" - at `$")
        place = place.removeprefix(".").rstrip("`")
        if reason.startswith("Object missing required field") and not place:
            place, reason = reason.split("`")[1], "is missing"
        raise RefusalError(422, f"{place}: {reason[0].lower()}{reason[1:]}") from None


async def respond(answer: Answer, limits: Limits, metrics: Metrics, request: Request) -> Response:
    """The response to a request: an answer or a refusal."""
    started, path = time.perf_counter(), request.url.path
    try:
        body = await asyncio.to_thread(parse, await read_body(request, limits))
        response: Response = JSONResponse(await _unless_gone(request, answer(path, body)))
    except RefusalError as refusal:
        response = refusal.response()
    except ClientDisconnect:
        metrics.clients_gone.inc()
        response = Response(status_code=499)  # which the metrics alone see
    except Exception as error:
        log_error("internal error", error)
        response = RefusalError(500, f"internal error: {type(error).__name__}").response()
    metrics.request(path, response.status_code, time.perf_counter() - started)
    return response


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`, which is cancelled if the client goes away first."""
    working = asyncio.create_task(work)
    while not working.done():
        await asyncio.wait([working], timeout=0.1)
        if not working.done() and await request.is_disconnected():
            working.cancel()
            raise ClientDisconnect
    return working.result()


def log_error(what: str, error: Exception) -> None:
    """Logs the type of an error and where it was raised, but not its message, which may have the text of a query."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error(f"{what}: {type(error).__name__}\n{frames.rstrip()}")
