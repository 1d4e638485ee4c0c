"""The routes of the server."""

import hmac
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rerank.runs.manifest import version
from rerank.serving.addresses import addressed
from rerank.serving.dialects import DIALECTS, dialect_of
from rerank.serving.dialects.tei import TEI
from rerank.serving.refusals import Reason, RefusalError
from rerank.serving.service import Service, refuse

PUBLIC = ("/health",)
"""What needs no key: a supervisor asks whether the server is ready."""
METRICS_TYPE = "text/plain; version=0.0.4"


def make_app(service: Service | None, key: str | None = None, extra: Sequence[BaseRoute] = ()) -> ASGIApp:
    """The ASGI application: /health, the `extra` routes, and of a service a route for each dialect, /info and /metrics.

    With a `key`, every request but those of PUBLIC needs the header `Authorization: Bearer <key>`.
    """
    routes: list[BaseRoute] = [Route("/health", lambda request: _health(service)), *extra]
    if service:
        routes += [Route(path, service.respond, methods=["POST"]) for path in DIALECTS]
        routes += [
            Route("/info", lambda request: JSONResponse(info(service))),
            Route("/metrics", lambda request: Response(service.metrics.text(), media_type=METRICS_TYPE)),
        ]
    app: ASGIApp = Starlette(routes=routes)
    return addressed(app if key is None else with_key(app, key))


def with_key(app: ASGIApp, key: str) -> ASGIApp:
    """The application for those who know the key; others get 401 in the dialect of the path."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PUBLIC and not _knows(Request(scope), key):
            refusal = RefusalError(Reason.UNAUTHORISED, "Authorization: expected Bearer and the server's key")
            await refuse(dialect_of(scope["address"]), refusal)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guarded


DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
"""TEI's names of precisions, where they differ from ours."""


def info(service: Service) -> dict[str, object]:
    """What TEI's `/info` says of a re-ranker; a document that is longer than `max_input_length` tokens is cut."""
    scorer, limits = service.reranker.scorer, service.limits
    label = "LABEL_0"
    return {
        "model_id": service.name,
        "model_sha": None,
        "model_dtype": DTYPES.get(scorer.precision, scorer.precision),
        "model_type": {"reranker": {"id2label": {"0": label}, "label2id": {label: 0}}},
        "max_concurrent_requests": limits.max_queue,
        "max_input_length": scorer.max_doc_tokens,
        "max_batch_tokens": scorer.max_tokens_per_forward,
        "max_batch_requests": None,
        "max_client_batch_size": limits.max_documents,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": version("ir-rerank") or "0",
        "sha": None,
        "docker_label": None,
    }


def _health(service: Service | None) -> Response:
    if service is None or service.engine.healthy:
        return Response()
    return refuse(TEI, RefusalError(Reason.UNHEALTHY, "unhealthy"))


def _knows(request: Request, key: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), key.encode())
