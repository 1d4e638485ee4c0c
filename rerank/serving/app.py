"""The routes of the server."""

import time
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rerank.experiments.runs.manifest import version
from rerank.serving.access import guarded
from rerank.serving.dialects import PATHS
from rerank.serving.metrics import Metrics
from rerank.serving.openapi import openapi
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
    origins: Sequence[str] = (),
) -> ASGIApp:
    """The ASGI application: the re-ranking APIs if there is a `service`, the search page if there are `searches`.

    `name` is the name of the model. If there are keys, a request needs one. Pages of the `origins` may send requests.
    """
    started = int(time.time())

    def health(request: Request) -> Response:
        healthy = service is None or service.engine.healthy
        note = searches.note() if searches else ""
        return Response(note, media_type="text/plain") if healthy else RefusalError(503, "unhealthy").response()

    model = {"id": name, "object": "model", "created": started, "owned_by": "rerank"}  # in OpenAI's format

    def one_model(request: Request) -> Response:
        if request.path_params["name"] != name:
            return RefusalError(404, f"no such model; expected {name}").response(request.url.path)
        return JSONResponse(model)

    routes = [Route(path, service.respond, methods=["POST"]) for path in PATHS if path != "/"] if service else []
    if searches:
        routes.append(Route("/search", searches.respond, methods=["POST"]))
    if searches or service:
        routes.append(Route("/", _Root(service, searches, metrics), methods=["GET", "POST"]))
    routes += [
        Route("/health", health),
        Route("/ping", health),
        Route("/info", lambda request: JSONResponse(_info(name, service))),
        Route("/openapi.json", lambda request: JSONResponse(openapi(service is not None, searches is not None))),
        Route("/v1/models", lambda request: JSONResponse({"object": "list", "data": [model]})),
        Route("/v1/models/{name:path}", one_model),
        Route("/metrics", lambda request: Response(metrics.text(), media_type="text/plain; version=0.0.4")),
    ]

    handlers: dict[Any, Any] = {HTTPException: _wrong_path({route.path for route in routes}, metrics)}
    app: ASGIApp = Starlette(routes=routes, exception_handlers=handlers)
    if keys:
        app = guarded(app, keys, metrics, searches.collection if searches else None)
    if origins:  # outside the check of keys, as a browser asks without one what it may send
        methods, headers = ["GET", "POST"], ["Authorization", "Content-Type", "X-API-Key"]
        app = CORSMiddleware(app, allow_origins=origins, allow_methods=methods, allow_headers=headers)
    return app


def _wrong_path(known: Container[str], metrics: Metrics) -> Callable[[Request, HTTPException], Awaitable[Response]]:
    """The handler that answers 404 and 405 as JSON; paths that are not `known` are counted together."""

    async def answer(request: Request, error: HTTPException) -> Response:
        path, headers = request.scope["path"], dict(error.headers or {})
        what = "no such path" if error.status_code == 404 else f"expected {headers.get('Allow')}"
        response = RefusalError(error.status_code, f"{request.method} {path[:100]}: {what}").response(path)
        response.headers.update(headers)
        metrics.request(path if path in known else "other", error.status_code, 0.0)
        return response

    return answer


class _Root:
    """The path `/`: the search page for GET, if there is one, and TEI's requests for POST."""

    def __init__(self, service: Service | None, searches: Searches | None, metrics: Metrics) -> None:
        self.service, self.searches, self.metrics = service, searches, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        if request.method == "POST" and self.service:
            response = await self.service.respond(request)
        elif request.method != "POST" and self.searches:
            start = time.perf_counter()
            response = await self.searches.page(request)
            self.metrics.request("/", response.status_code, time.perf_counter() - start)
        else:
            raise HTTPException(405, headers={"Allow": "POST" if self.service else "GET"})
        await response(scope, receive, send)


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
