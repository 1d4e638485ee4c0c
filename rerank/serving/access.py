"""Access by keys: programs send a header; the search page asks for a key once and keeps a cookie.

The cookie has a hash of the key, not the key, and opens the page only. It is valid as long as the file of keys has the
key, also after a restart, and ends with the browser.
"""

import hashlib
import hmac
import time
from collections.abc import Sequence
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rerank.serving.metrics import Metrics
from rerank.serving.requests import Limits, RefusalError, read_body
from rerank.serving.search_page import page

OPEN = ("/health", "/ping")
"""Paths without a key, which supervisors call."""

COOKIE = "rerank-key"
FORM = "/key"
"""The path to which the form sends a key."""

LARGEST_FORM = 2**17
"""Bytes of the form, which also has the query of the page."""

MOST_FIELDS = 10
"""Fields of the form."""


def guarded(app: ASGIApp, keys: Sequence[str], metrics: Metrics, collection: str | None) -> ASGIApp:
    """The application behind a check of keys; `collection` is the name that the search page shows, if there is one."""

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        answer, path = app, scope.get("path", "")
        if scope["type"] == "http" and path not in OPEN:
            request = Request(scope, receive)
            is_page = collection is not None and path == "/" and request.method in ("GET", "HEAD")
            if collection is not None and (path, request.method) == (FORM, "POST"):
                answer = await _key_given(request, keys, metrics, collection)
            elif not _has_key(request, keys) and not (is_page and _has_cookie(request, keys)):
                metrics.keys_refused.inc()
                line = "Authorization: expected Bearer and a key of the server, or X-API-Key with one"
                refusal = RefusalError(401, line).response(path)
                answer = _form(collection, request.url.query) if is_page and collection else refusal
        await answer(scope, receive, send)

    return guard


def cookie_of(key: str) -> str:
    """The value of the cookie for a key."""
    return hmac.new(key.encode(), b"the search page of rerank", hashlib.sha256).hexdigest()


def _has_key(request: Request, keys: Sequence[str]) -> bool:
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    bearer = bearer if scheme.lower() == "bearer" else ""
    return _is_one_of(request.headers.get("x-api-key", "").strip(), keys) or _is_one_of(bearer.strip(), keys)


def _has_cookie(request: Request, keys: Sequence[str]) -> bool:
    return _is_one_of(request.cookies.get(COOKIE, ""), [cookie_of(key) for key in keys])


def _is_one_of(given: str, known: Sequence[str]) -> bool:
    """Whether a text is one of these; compares with all, in a time that tells nothing of them."""
    return sum(hmac.compare_digest(given.encode(), one.encode()) for one in known) > 0


def _form(collection: str, to: str, problem: str = "", status: int = 401) -> Response:
    """The form that asks for a key; `to` is the query of the page's URL, which is shown next."""
    refusal = RefusalError(status, problem)
    return page("key.html", {"collection": collection, "to": to, "problem": problem}, refusal)


async def _key_given(request: Request, keys: Sequence[str], metrics: Metrics, collection: str) -> Response:
    """The answer to the form: the page with the cookie, or the form with a line."""
    started, to = time.perf_counter(), ""
    try:
        limits = Limits(max_body_bytes=LARGEST_FORM, flag="")
        body = await read_body(request, limits, "application/x-www-form-urlencoded")
        given = dict(parse_qsl(body.decode("ascii", "replace"), max_num_fields=MOST_FIELDS))
        key, to = given.get("key", "").strip(), given.get("to", "")
        if _is_one_of(key, keys):
            response: Response = RedirectResponse(f"/?{to}" if to else "/", 303)
            secure = request.url.scheme == "https"
            response.set_cookie(COOKIE, cookie_of(key), httponly=True, samesite="strict", secure=secure)
        else:
            metrics.keys_refused.inc()
            response = _form(collection, to, "The server does not know this key.")
    except ClientDisconnect:
        response = Response(status_code=499)  # only for the metrics
    except RefusalError as refusal:
        response = _form(collection, to, str(refusal), refusal.status)
    except ValueError:
        response = _form(collection, to, f"the form has over {MOST_FIELDS} fields", 400)
    metrics.request(FORM, response.status_code, time.perf_counter() - started)
    return response
