"""Answers requests, or refuses them."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from rerank.serving.bodies import Body, Limits, parse, read_body
from rerank.serving.metrics import Metrics
from rerank.serving.refusals import Reason, RefusalError, log_error

Result = TypeVar("Result")

CLIENT_CLOSED = 499
"""The status, in the metrics alone, of a request whose client went away."""


class Endpoint(ABC):
    """Answers the requests of some paths."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits, self.metrics = limits, metrics

    @abstractmethod
    def check_room(self) -> None:
        """Raises RefusalError if nothing can be answered now."""

    @abstractmethod
    async def answer(self, path: str, body: Body) -> Any:
        """The JSON of the answer to a request, or RefusalError; cancelled if the client goes away."""

    async def respond(self, request: Request) -> Response:
        """The response to a request: an answer or a refusal."""
        started, path = time.perf_counter(), request.url.path
        try:
            sent = await read_body(request, self.limits)
            self.check_room()
            body = await asyncio.to_thread(parse, sent)
            response: Response = JSONResponse(await _unless_gone(request, self.answer(path, body)))
        except RefusalError as refusal:
            response = refusal.response()
        except ClientDisconnect:
            self.metrics.clients_gone.inc()
            response = Response(status_code=CLIENT_CLOSED)
        except Exception as error:
            log_error("internal error", error)
            response = RefusalError(Reason.INTERNAL, f"internal error: {type(error).__name__}").response()
        self.metrics.request(path, response.status_code, time.perf_counter() - started)
        return response


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
