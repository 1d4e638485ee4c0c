"""Who may ask: the keys, and the pages of other origins."""

import hmac
from dataclasses import dataclass

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from rerank.serving.dialects import dialect_of
from rerank.serving.metrics import Metrics
from rerank.serving.refusals import Reason, RefusalError
from rerank.serving.responses import refuse

PUBLIC = ("/health", "/healthz", "/ready", "/version")
"""What needs no key: a supervisor asks whether the server is ready."""
HEADERS = ("x-api-key", "api-key")
"""Headers that may have a key, beside Authorization."""


@dataclass(frozen=True)
class Access:
    """The keys of which a request needs one, if there are any, and the origins whose pages may ask ("*" for all).

    open_metrics: whether `/metrics` needs no key.
    """

    keys: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    open_metrics: bool = False

    def guard(self, app: ASGIApp, metrics: Metrics) -> ASGIApp:
        """The application for those who have access; others get 401 in the dialect of the path."""
        guarded = self._with_keys(app, metrics) if self.keys else app
        if not self.origins:
            return guarded
        return CORSMiddleware(guarded, self.origins, allow_methods=("GET", "POST"), allow_headers=("*",))

    def _with_keys(self, app: ASGIApp, metrics: Metrics) -> ASGIApp:
        public = (*PUBLIC, "/metrics") if self.open_metrics else PUBLIC

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            answer = app
            if scope["type"] == "http" and scope["path"] not in public and not self._knows(Request(scope)):
                metrics.keys_refused.inc()
                reason = "Authorization: expected Bearer and a key of the server, or X-API-Key with one"
                answer = refuse(dialect_of(scope["address"]), RefusalError(Reason.UNAUTHORISED, reason))
            await answer(scope, receive, send)

        return guarded

    def _knows(self, request: Request) -> bool:
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        given = [request.headers.get(name, "") for name in HEADERS] + [bearer if scheme.lower() == "bearer" else ""]
        return any(hmac.compare_digest(one.strip().encode(), key.encode()) for one in given for key in self.keys)


OPEN = Access()
"""Access for everyone who reaches the server."""
