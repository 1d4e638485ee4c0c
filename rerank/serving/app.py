"""The routes of the server."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from rerank.runs.manifest import version
from rerank.serving.access import OPEN, Access
from rerank.serving.addresses import addressed
from rerank.serving.dialects import DIALECTS, EMBEDDINGS, RANKINGS, SEARCHES
from rerank.serving.dialects.tei import TEI
from rerank.serving.embedder import DTYPES, Embedder
from rerank.serving.metrics import Metrics
from rerank.serving.openapi import docs_page, openapi
from rerank.serving.refusals import Reason, RefusalError
from rerank.serving.responses import no_such_path, refuse
from rerank.serving.search_page import Searches
from rerank.serving.service import Service

METRICS_TYPE = "text/plain; version=0.0.4"
VERSION = version("ir-rerank") or "0"


class Served(NamedTuple):
    """What a server has: a service that ranks, an embedder, searches with a page; and its metrics."""

    name: str
    metrics: Metrics
    service: Service | None = None
    embedder: Embedder | None = None
    searches: Searches | None = None

    @property
    def healthy(self) -> bool:
        """Whether the model's thread runs, if there is one."""
        return self.service is None or self.service.engine.healthy


def make_app(served: Served, access: Access = OPEN, reload: Callable[..., Any] | None = None) -> ASGIApp:
    """The ASGI application of what is served, for those who have access; `reload` answers `POST /reload`."""
    endpoints = ((served.service, RANKINGS), (served.embedder, EMBEDDINGS), (served.searches, SEARCHES))
    responding = {path: endpoint.respond for endpoint, paths in endpoints if endpoint for path in paths}
    described = {path: DIALECTS[path] for path in responding}
    routes = [Route(path, respond, methods=["POST"]) for path, respond in responding.items()]
    if served.searches:
        routes.append(Route("/", served.searches.page))
    gets: dict[str, Callable[[], Response]] = {
        "/health": lambda: _health(served),
        "/ready": lambda: _health(served),
        "/healthz": Response,
        "/version": lambda: JSONResponse({"version": VERSION}),
        "/info": lambda: JSONResponse(info(served)),
        "/models": lambda: JSONResponse(models(served)),
        "/metrics": lambda: Response(served.metrics.text(), media_type=METRICS_TYPE),
        "/openapi.json": lambda: JSONResponse(openapi(described, VERSION)),
        "/docs": lambda: docs_page(described, VERSION),
    }
    routes += [Route(path, _answering(answer)) for path, answer in gets.items()]
    routes.append(Route("/models/{name:path}", _answering(lambda: JSONResponse(models(served)["data"][0]))))
    routes.append(Route("/reload", reload or _no_reload, methods=["POST"]))
    handlers: dict[Any, Any] = {HTTPException: no_such_path}
    app: ASGIApp = Starlette(routes=routes, exception_handlers=handlers)
    return addressed(access.guard(app, served.metrics))


def info(served: Served) -> dict[str, object]:
    """What TEI's `/info` says; a document that is longer than `max_input_length` tokens is cut."""
    about: dict[str, object] = {"model_id": served.name, "model_sha": None}
    if served.service:
        scorer, limits, label = served.service.reranker.scorer, served.service.limits, "LABEL_0"
        about |= {
            "model_dtype": DTYPES.get(scorer.precision, scorer.precision),
            "model_type": {"reranker": {"id2label": {"0": label}, "label2id": {label: 0}}},
            "max_concurrent_requests": limits.max_queue,
            "max_input_length": scorer.max_doc_tokens,
            "max_batch_tokens": scorer.max_tokens_per_forward,
            "max_batch_requests": None,
            "max_client_batch_size": limits.max_documents,
        }
    elif served.embedder:
        about |= served.embedder.info()
    return about | {
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": VERSION,
        "sha": None,
        "docker_label": None,
    }


def models(served: Served) -> dict[str, Any]:
    """The list of models as OpenAI's clients read it (`data`, with Infinity's fields), and Cohere's (`models`)."""
    tasks = [task for task, there in (("rerank", served.service), ("embed", served.embedder)) if there]
    one = {
        "id": served.name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "infinity",  # Infinity's client takes no other
        "backend": "torch",
        "capabilities": tasks,
        "stats": {},
    }
    return {"object": "list", "data": [one], "models": [{"name": served.name, "endpoints": tasks}]}


def _answering(answer: Callable[[], Response]) -> Callable[[Request], Response]:
    return lambda request: answer()


def _no_reload(request: Request) -> Response:
    line = "POST /reload: needs a key; start the server with --api-key-file FILE"
    return JSONResponse({"error": line, "detail": line}, 403)


def _health(served: Served) -> Response:
    return Response() if served.healthy else refuse(TEI, RefusalError(Reason.UNHEALTHY, "unhealthy"))
