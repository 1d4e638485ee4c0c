"""Answers a request in the dialect of its address and body, or refuses it there."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rerank.serving.bodies import Bodies, parse
from rerank.serving.dialects import Dialect, dialect_of
from rerank.serving.dialects.fields import Body
from rerank.serving.metrics import Metrics
from rerank.serving.refusals import ClientGoneError, Reason, RefusalError, log_error

Result = TypeVar("Result")

CLIENT_CLOSED = 499
"""The status, in the metrics alone, of a request whose client went away."""


async def respond(
    request: Request,
    bodies: Bodies,
    metrics: Metrics,
    check: Callable[[], object],
    answer: Callable[[Dialect, Body], Coroutine[Any, Any, Any]],
) -> Response:
    """The response to a request: what `answer` gives of its body, as JSON, or a refusal.

    `check` raises RefusalError if nothing can be answered now; `answer` is cancelled if the client goes away.
    """
    started, address = time.perf_counter(), request.scope["address"]
    dialect = dialect_of(address)
    try:
        async with bodies.body(request) as sent:
            check()
            body = await asyncio.to_thread(parse, sent)
            dialect = dialect_of(address, body)
            answered = await _unless_gone(request, answer(dialect, body))
        response: Response = JSONResponse(answered)
    except RefusalError as refusal:
        response = refuse(dialect, refusal)
    except ClientGoneError:
        metrics.clients_gone.inc()
        response = Response(status_code=CLIENT_CLOSED)
    except Exception as error:
        log_error("internal error", error)
        response = refuse(dialect, RefusalError(Reason.INTERNAL, f"internal error: {type(error).__name__}"))
    metrics.request(dialect.name, response.status_code, time.perf_counter() - started)
    return response


def refuse(dialect: Dialect, refusal: RefusalError) -> JSONResponse:
    """The response to a refused request."""
    status = dialect.status(refusal)
    headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else {}
    if refusal.reason is Reason.UNAUTHORISED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(dialect.error(refusal, status), status, headers)


async def no_such_path(request: Request, error: Exception) -> Response:
    """404 and 405 as JSON."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    what = "no such path" if status == 404 else f"expected {headers.get('Allow') or headers.get('allow')}"
    line = f"{request.method} {request.scope['path'][:100]}: {what}; GET /docs lists what there is"
    return JSONResponse({"error": line, "detail": line}, status, headers)


async def _unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """The result of `work`, which is cancelled if the client goes away first."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait([working, gone], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
