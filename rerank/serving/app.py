"""The routes of the server, and the check of API keys."""

import hmac
import time
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rerank.experiments.runs.manifest import version
from rerank.serving.dialects import PATHS
from rerank.serving.metrics import Metrics
from rerank.serving.requests import RefusalError
from rerank.serving.search_page import Searches
from rerank.serving.service import Service

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
"""The names of precisions in TEI."""


def make_app(
    name: str,
    metrics: Metrics,
    service: Service | None = None,
    searches: Searches | None = None,
    keys: tuple[str, ...] = (),
) -> ASGIApp:
    """The ASGI application: the re-ranking APIs if there is a `service`, the search page if there are `searches`.

    `name` is the name of the model. If there are keys, a request needs one.
    """

    def health(request: Request) -> Response:
        healthy = service is None or service.engine.healthy
        note = searches.note() if searches else ""
        return Response(note, media_type="text/plain") if healthy else RefusalError(503, "unhealthy").response()

    def models(request: Request) -> Response:  # in OpenAI's format
        model = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "rerank"}
        return JSONResponse({"object": "list", "data": [model]})

    routes = [Route(path, service.respond, methods=["POST"]) for path in PATHS] if service else []
    if searches:
        routes += [Route("/search", searches.respond, methods=["POST"]), Route("/", searches.page)]
    routes += [
        Route("/health", health),
        Route("/info", lambda request: JSONResponse(_info(name, service))),
        Route("/v1/models", models),
        Route("/metrics", lambda request: Response(metrics.text(), media_type="text/plain; version=0.0.4")),
    ]
    handlers: dict[Any, Any] = {HTTPException: _no_such_path}
    app: ASGIApp = Starlette(routes=routes, exception_handlers=handlers)
    return _guarded(app, keys, metrics) if keys else app


def _info(name: str, service: Service | None) -> dict[str, object]:
    """The answer of TEI's `/info`; documents are cut at `max_input_length` tokens.

    TEI's client needs all fields, also those without a meaning here.
    """
    about: dict[str, object] = {"model_id": name, "auto_truncate": True, "version": version("ir-rerank") or "0"}
    about |= {"tokenization_workers": 1, **dict.fromkeys(("sha", "docker_label", "max_batch_requests"))}
    if service:
        scorer, limits = service.reranker.scorer, service.limits
        about |= {
            "model_dtype": DTYPES.get(scorer.precision, scorer.precision),
            "model_type": {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}},
            "max_concurrent_requests": limits.max_queue,
            "max_input_length": scorer.model.max_doc_tokens,
            "max_batch_tokens": scorer.budget.tokens,
            "max_client_batch_size": limits.max_documents,
        }
    return about


async def _no_such_path(request: Request, error: HTTPException) -> Response:
    """Answers 404 and 405 as JSON."""
    headers = dict(error.headers or {})
    what = "no such path" if error.status_code == 404 else f"expected {headers.get('Allow')}"
    response = RefusalError(error.status_code, f"{request.method} {request.url.path[:100]}: {what}").response()
    response.headers.update(headers)
    return response


def _guarded(app: ASGIApp, keys: tuple[str, ...], metrics: Metrics) -> ASGIApp:
    """Answers 401 to requests without one of the keys, except to `/health`, which supervisors call."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        answer = app
        if scope["type"] == "http" and scope["path"] != "/health" and not _has_key(Request(scope), keys):
            metrics.keys_refused.inc()
            line = "Authorization: expected Bearer and a key of the server, or X-API-Key with one"
            answer = RefusalError(401, line).response()
        await answer(scope, receive, send)

    return guarded


def _has_key(request: Request, keys: tuple[str, ...]) -> bool:
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    given = [request.headers.get("x-api-key", ""), bearer if scheme.lower() == "bearer" else ""]
    return any(hmac.compare_digest(text.strip().encode(), key.encode()) for text in given for key in keys)
