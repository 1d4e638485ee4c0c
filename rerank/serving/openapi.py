"""The API in OpenAPI's format, and as a page that loads nothing; both follow from the fields of requests."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import HTMLResponse

from rerank.serving.dialects import Dialect
from rerank.serving.dialects.fields import Request, uses
from rerank.serving.pages import page

Apis = Mapping[str, Sequence[Dialect]]
"""Path -> the APIs that are spoken there."""
OTHERS = {
    "/info": "What is served, as TEI says it.",
    "/models": "The models, as OpenAI, Infinity and Cohere list them.",
    "/health": "200 if the model can score, 503 if not. Needs no key, as the next three.",
    "/ready": "The same.",
    "/healthz": "200 while the server runs, also before the model is loaded.",
    "/version": "The version of rerank.",
    "/metrics": "Counts in Prometheus' text format.",
}


def openapi(apis: Apis, version: str) -> dict[str, Any]:
    """The description of the paths in OpenAPI 3.1."""
    kinds = list(dict.fromkeys(dialect.request for spoken in apis.values() for dialect in spoken))
    references, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    reference = dict(zip(kinds, references, strict=True))
    paths: dict[str, Any] = {
        path: {"post": _operation(spoken, [reference[kind] for kind in _kinds(spoken)])}
        for path, spoken in apis.items()
    }
    paths |= {path: {"get": {"summary": text, "responses": _RESPONSES}} for path, text in OTHERS.items()}
    about = {"title": "rerank", "version": version}
    return {"openapi": "3.1.0", "info": about, "paths": paths, "components": {"schemas": schemas}}


def docs_page(apis: Apis, version: str) -> HTMLResponse:
    """The description as a page."""
    tables = [
        (path, name, kind, uses(kind))
        for path, spoken in apis.items()
        for name, kind in {(_names(spoken, kind), kind): None for kind in _kinds(spoken)}
    ]
    return page("docs.html", tables=tables, others=OTHERS, version=version)


_RESPONSES = {"200": {"description": "The answer."}, "default": {"description": "One line that says what is wrong."}}


def _operation(spoken: Sequence[Dialect], references: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = ", ".join(dict.fromkeys(dialect.name for dialect in spoken))
    content = {"application/json": {"schema": {"anyOf": references}}}
    return {
        "summary": f"In the API of {names}.",
        "requestBody": {"required": True, "content": content},
        "responses": _RESPONSES,
    }


def _kinds(spoken: Sequence[Dialect]) -> list[type[Request]]:
    return list(dict.fromkeys(dialect.request for dialect in spoken))


def _names(spoken: Sequence[Dialect], kind: type[Request]) -> str:
    return ", ".join(f"{dialect.name} {dialect.version}".strip() for dialect in spoken if dialect.request is kind)
