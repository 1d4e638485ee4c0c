"""The description of the server in OpenAPI's format, from the classes of its requests."""

from typing import Any

import msgspec

from rerank.experiments.runs.manifest import version
from rerank.serving.dialects import KINDS, JinaRequest
from rerank.serving.search_page import SearchRequest

GETS = {"/health": "Whether the model answers.", "/info": "What is served, as TEI says it.", "/v1/models": "The model."}
"""The paths that are read, and what they tell."""


def openapi(ranks: bool, searches: bool) -> dict[str, Any]:
    """The paths and the fields of requests; the flags tell whether the server re-ranks documents, and searches."""
    kinds: dict[str, type[msgspec.Struct]] = {path: kind for path, (kind, _) in KINDS.items()} if ranks else {}
    if searches:
        kinds["/search"] = SearchRequest
    found, components = msgspec.json.schema_components(
        kinds.values(),
        schema_hook=lambda _: {"description": "any value"},
        ref_template="#/components/schemas/{name}",
    )  # msgspec has no schema of `object`, the values of other keys of a document
    schemas = dict(zip(kinds, found, strict=True))
    paths: dict[str, Any] = {
        path: {"get": {"summary": text, "responses": {"200": {"description": "The answer."}}}}
        for path, text in GETS.items()
    }
    for path, kind in kinds.items():
        schema = {"anyOf": [schemas[path], schemas["/"]]} if kind is JinaRequest else schemas[path]  # or TEI's
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        text = (kind.__doc__ or "").splitlines()[0]
        answers = {"200": {"description": "The answer."}, "4XX": {"description": "A refusal, in one line."}}
        paths[path] = {"post": {"summary": text, "requestBody": body, "responses": answers}}
    about = {"title": "rerank", "version": version("ir-rerank") or "0"}
    return {"openapi": "3.1.0", "info": about, "paths": paths, "components": {"schemas": components}}
