"""Live: the application that is served now, before its model is loaded and when another one is loaded in its place."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rerank.serving.addresses import address_of
from rerank.utils.errors import UserError
from rerank.utils.progress import log

LOADING = "the model is being loaded; try again"
RETRY_AFTER = 5
PAUSE = 0.05
"""Seconds between two looks at whether the requests of an earlier application are answered."""

Open = Callable[[], AbstractContextManager[ASGIApp]]
"""Opens what is served, until the block ends."""


class _Opened:
    """An application, its requests that are not answered, and what closes it."""

    def __init__(self, app: ASGIApp, resources: ExitStack) -> None:
        self.app, self.resources, self.requests = app, resources, 0

    def close(self) -> None:
        """Closes it when its requests are answered, those too that found it the moment before it was replaced."""
        time.sleep(PAUSE)
        while self.requests:
            time.sleep(PAUSE)
        self.resources.close()


class Live:
    """An ASGI application that hands each request to the newest one that `open` gave.

    A request is answered by the application that was there when it came. Until the first is open, requests get 503.
    """

    def __init__(self, open_app: Open) -> None:
        self._open, self._current = open_app, _Opened(_loading, ExitStack())
        self._loading = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        opened = self._current
        opened.requests += 1
        try:
            await opened.app(scope, receive, send)
        finally:
            opened.requests -= 1

    def load(self) -> None:
        """Opens the application anew and takes it in the place of the one before. Raises UserError if it cannot be."""
        if not self._loading.acquire(blocking=False):
            raise UserError("a reload is under way; wait until it ends")
        try:
            resources = ExitStack()
            app = resources.enter_context(self._open())
            before, self._current = self._current, _Opened(app, resources)
            threading.Thread(target=before.close, name="close", daemon=True).start()
        finally:
            self._loading.release()

    async def reload(self, request: Request) -> Response:
        """The answer to `POST /reload`: 200 when the new model answers, 409 if it cannot; then the old one goes on."""
        try:
            await asyncio.to_thread(self.load)
        except UserError as error:
            log.error(f"reload: {error}")
            return JSONResponse({"error": f"not reloaded: {error}"}, 409)
        log.info("reloaded")
        return JSONResponse({"reloaded": True})

    def close(self) -> None:
        """Closes the application, whose requests are answered."""
        self._current.resources.close()


async def _loading(scope: Scope, receive: Receive, send: Send) -> None:
    """Before there is a model: the server runs (`/healthz`), and nothing else is answered yet."""
    alive = address_of(scope["path"]).path == "/healthz"
    line = {"error": LOADING, "detail": LOADING}
    answer = Response() if alive else JSONResponse(line, 503, {"Retry-After": str(RETRY_AFTER)})
    await answer(scope, receive, send)
