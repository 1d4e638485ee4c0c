"""Reads the bodies of requests within limits, and answers or refuses requests."""

import asyncio
import time
import traceback
import zlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from rerank.serving.metrics import Metrics
from rerank.utils.progress import log

DISCARDED = 4
"""A body that is too large is read up to this many times the limit, so that the client reads the refusal."""

KINDS = {429: "Overloaded", 500: "Backend", 503: "Unhealthy"}
"""TEI's error types by status; others are "Validation"."""

HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}
"""Status -> headers of a refusal; a full queue may have room after a second."""

OF_OPENAI = ("/score", "/v1/score", "/v1/models")
"""The beginnings of the paths whose clients read errors as those of OpenAI and vLLM."""

OF_FASTAPI = "/infinity"
"""The beginning of the paths whose clients read errors as those of FastAPI, with which Infinity serves."""

Body = dict[str, object]
"""The JSON object of a request."""
Answer = Callable[[str, Body], Coroutine[None, None, object]]
"""(path, body) -> the JSON of the answer; raises RefusalError, and is cancelled if the client disconnects."""
Fields = TypeVar("Fields", bound=msgspec.Struct)


class RefusalError(Exception):
    """A refused request: the HTTP status, and a line that states the mistake and the expected value.

    The line never contains a query or a document. `kind` is TEI's error type.
    """

    def __init__(self, status: int, line: str, kind: str = "") -> None:
        super().__init__(line)
        self.status, self.kind, self.headers = status, kind or KINDS.get(status, "Validation"), HEADERS.get(status, {})

    def response(self, path: str = "") -> JSONResponse:
        """The response, with the line under the keys of TEI (`error`), Jina (`detail`) and Cohere (`message`).

        On the paths of OpenAI and vLLM `error` is an object, and on Infinity's `detail` a list, as their clients read
        them.
        """
        line = str(self)
        error = {"message": line, "type": self.kind, "param": None, "code": self.status}
        body: dict[str, object] = {"error": error if path.startswith(OF_OPENAI) else line, "error_type": self.kind}
        detail: object = [{"loc": ["body"], "msg": line, "type": self.kind}] if path.startswith(OF_FASTAPI) else line
        body |= {"detail": detail, "message": line}
        return JSONResponse(body, self.status, self.headers)


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    max_body_bytes: bytes of a request's body.
    max_documents: documents of a request.
    max_queue: documents of all requests that wait or are being scored.
    body_seconds: seconds in which a body must arrive.
    flag: the flag that sets `max_body_bytes`; "" if none does.
    """

    max_body_bytes: int = 16 * 2**20
    max_documents: int = 1000
    max_queue: int = 10_000
    body_seconds: float = 60.0
    flag: str = "--max-body-mib"


async def read_body(request: Request, limits: Limits, content_type: str = "application/json") -> bytes:
    """The whole body of a request, unpacked if it is gzipped.

    Raises RefusalError if it has another type, is too large, unpacked or not, or too late, and ClientDisconnect if the
    client disconnects.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise RefusalError(415, "Content-Encoding: expected gzip, or none")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != content_type:
        raise RefusalError(415, f"Content-Type: expected {content_type}")
    limit, body, size = limits.max_body_bytes, bytearray(), 0
    flag = f" ({limits.flag})" if limits.flag else ""
    too_large = RefusalError(413, f"the body has over {limit} bytes, the limit{flag}")
    if int(request.headers.get("content-length", "0")) > DISCARDED * limit:
        raise too_large
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > DISCARDED * limit:
                    break
                if size <= limit:
                    body += chunk
    except TimeoutError:
        raise RefusalError(408, f"the body did not arrive in {limits.body_seconds:g} s") from None
    if size > limit:
        raise too_large
    return _unpacked(bytes(body), limit, too_large) if encoding == "gzip" else bytes(body)


def _unpacked(body: bytes, limit: int, too_large: RefusalError) -> bytes:
    """The content of a gzipped body, at most `limit` bytes."""
    unpacker = zlib.decompressobj(zlib.MAX_WBITS + 16)  # the header of gzip
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise RefusalError(400, f"the body is no gzip: {error}") from None
    if len(unpacked) > limit:
        raise too_large
    if not unpacker.eof:
        raise RefusalError(400, "the body is no whole gzip: its end is missing")
    return unpacked


def parse(body: bytes) -> Body:
    """The JSON object of a body; raises RefusalError for anything else."""
    try:
        return msgspec.json.decode(body, type=Body)
    except (ValueError, RecursionError) as error:  # the message contains nothing of the body
        raise RefusalError(400, f"the body is not a JSON object in UTF-8: {error}") from None


def convert(body: Body, kind: type[Fields]) -> Fields:
    """The fields of a JSON object; "true" may be a boolean and "3" a number.

    Raises RefusalError, which names the field but not its value.
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
    started, path = time.perf_counter(), request.scope["path"]
    try:
        body = await asyncio.to_thread(parse, await read_body(request, limits))
        response: Response = JSONResponse(await _unless_gone(request, answer(path, body)))
    except RefusalError as refusal:
        response = refusal.response(path)
    except ClientDisconnect:
        metrics.clients_gone.inc()
        response = Response(status_code=499)  # only for the metrics
    except Exception as error:
        log_error("internal error", error)
        response = RefusalError(500, f"internal error: {type(error).__name__}").response(path)
    metrics.request(path, response.status_code, time.perf_counter() - started)
    return response


async def _unless_gone(request: Request, work: Coroutine[None, None, object]) -> object:
    """The result of `work`, which is cancelled if the client disconnects first."""
    working = asyncio.create_task(work)
    while not working.done():
        await asyncio.wait([working], timeout=0.1)
        if not working.done() and await request.is_disconnected():
            working.cancel()
            raise ClientDisconnect
    return working.result()


def log_error(what: str, error: Exception) -> None:
    """Logs the type and the traceback of an error, but not its message, which may contain a query."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error(f"{what}: {type(error).__name__}\n{frames.rstrip()}")
