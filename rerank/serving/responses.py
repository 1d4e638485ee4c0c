"""Answers requests in the dialect of their address and body, or refuses them there."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from rerank.serving.bodies import Bodies, parse
from rerank.serving.dialects import Dialect, dialect_of
from rerank.serving.dialects.fields import Body
from rerank.serving.limits import Limits
from rerank.serving.metrics import Metrics
from rerank.serving.refusals import Reason, RefusalError, log_error

Result = TypeVar("Result")

CLIENT_CLOSED = 499
"""The status, in the metrics alone, of a request whose client went away."""
RETRY_AFTER = 1
"""Seconds after which what waits may be done."""


class Endpoint(ABC):
    """Answers the requests of some dialects."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics, self._bodies = limits, metrics, Bodies(limits)

    @abstractmethod
    def check_room(self) -> None:
        """Raises RefusalError if nothing can be answered now."""

    @abstractmethod
    async def answer(self, dialect: Dialect, body: Body) -> Any:
        """The JSON of the answer to a request, or RefusalError; cancelled if the client goes away."""

    async def respond(self, request: Request) -> Response:
        """The response to a request, in the dialect of its address and body: an answer or a refusal."""
        started, address = time.perf_counter(), request.scope["address"]
        dialect = dialect_of(address)
        try:
            async with self._bodies.body(request) as sent:
                self.check_room()
                body = await asyncio.to_thread(parse, sent)
                dialect = dialect_of(address, body)
                answered = await _unless_gone(request, self.answer(dialect, body))
            response: Response = JSONResponse(answered)
        except RefusalError as refusal:
            response = refuse(dialect, refusal)
        except ClientDisconnect:
            self.metrics.clients_gone.inc()
            response = Response(status_code=CLIENT_CLOSED)
        except Exception as error:
            log_error("internal error", error)
            response = refuse(dialect, RefusalError(Reason.INTERNAL, f"internal error: {type(error).__name__}"))
        self.metrics.request(dialect.name, response.status_code, time.perf_counter() - started)
        return response


class OneByOne(Endpoint):
    """An endpoint that answers one request after the other, in one thread."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        super().__init__(limits, metrics)
        self._thread, self._waiting = ThreadPoolExecutor(1, thread_name_prefix=type(self).__name__), 0

    def check_room(self, count: int = 1) -> None:
        """Raises RefusalError if `count` more texts or queries do not fit into the queue."""
        if self._waiting + count > self.limits.max_queue:
            line = f"the queue is full: {self._waiting} wait, {self.limits.max_queue} is the limit; try again"
            raise RefusalError(Reason.OVERLOADED, line, RETRY_AFTER)

    async def run(self, function: Callable[[], Result], count: int = 1) -> Result:
        """What the function returns in the thread; raises RefusalError if `count` texts or queries do not fit."""
        self.check_room(count)
        self._waiting += count
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function)
        finally:
            self._waiting -= count

    def stop(self) -> None:
        """Ends the thread when what waits is done."""
        self._thread.shutdown()


def refuse(dialect: Dialect, refusal: RefusalError) -> JSONResponse:
    """The response to a refused request."""
    status = dialect.status(refusal)
    return JSONResponse(dialect.error(refusal, status), status, refusal.headers)


async def no_such_path(request: Request, error: Exception) -> Response:
    """404 and 405 as JSON."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    what = "no such path" if status == 404 else f"expected {headers.get('Allow') or headers.get('allow')}"
    line = f"{request.method} {request.scope['path'][:100]}: {what}; GET /docs lists what there is"
    return JSONResponse({"error": line, "detail": line}, status, headers)


async def _unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled if the client goes away first."""
    working, gone = asyncio.create_task(work), asyncio.create_task(_gone(request))
    gone.add_done_callback(lambda _: working.cancel())
    try:
        return await working
    except asyncio.CancelledError:
        if gone.done():
            raise ClientDisconnect from None
        raise
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
