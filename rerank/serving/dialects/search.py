"""The server's own API: `POST /search`, which searches a collection as `rerank search` does."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from rerank.data.types import Hit
from rerank.serving.dialects.dialect import Dialect
from rerank.serving.dialects.fields import Request, honoured
from rerank.serving.refusals import RefusalError

TOP, MOST = 10, 1000
"""The documents that a search shows, and the most that it can be asked for."""


class SearchRequest(Request):
    """Other fields are passed over."""

    query: Annotated[str, honoured("The query.")]
    top: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=MOST)] | None, honoured(f"The number of hits, {TOP} by default.")
    ] = None
    explain: Annotated[bool | None, honoured("Rank and score of each stage, and matched words.")] = None


class Found(NamedTuple):
    """The hits of a search, and whether they are explained."""

    hits: Sequence[Hit]
    explain: bool


def answer(found: Found) -> dict[str, Any]:
    """{hits: [{doc_id, rank, score, title, snippet}], answered_by?}, best first.

    `answered_by` is the name of the stage that ranked them. Title and snippet are {text, marks}, and a mark is the
    begin and end of a word of the query, in characters.
    """
    answered = {"answered_by": list(found.hits[0].stages)[-1]} if found.hits else {}
    return {"hits": [_as_json(hit, found.explain) for hit in found.hits], **answered}


def _as_json(hit: Hit, explain: bool) -> dict[str, Any]:
    about = {**hit._asdict(), "title": hit.title._asdict(), "snippet": hit.snippet._asdict()}
    stages, matches, _ = about.pop("stages"), about.pop("matches"), about.pop("text")
    if explain:
        about["stages"] = {name: {"rank": rank, "score": score} for name, (rank, score) in stages.items()}
        about["matches"] = dict(matches)
    return about


def error(refusal: RefusalError, status: int) -> dict[str, Any]:
    """{error}."""
    return {"error": str(refusal)}


SEARCH = Dialect("search", SearchRequest, lambda request: request, answer, error, strict=True)
