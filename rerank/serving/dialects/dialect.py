"""Dialect: how a server's API asks for scores or vectors, answers, and refuses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rerank.serving.dialects.fields import Body, Request, convert
from rerank.serving.refusals import Reason, RefusalError


@dataclass(frozen=True)
class Dialect:
    """An API.

    name: also the first part of the paths where it alone is spoken. request: the fields. question: what a request asks,
    or RefusalError is raised. answer: the JSON of what was found. error: the JSON of a refusal, given its status.
    statuses: those that differ from the reasons' own. strict: "true" is no boolean, as in that API. signs: fields
    by which a request is known as one of this API. version: the only version of the path, "" for any.
    """

    name: str
    request: type[Request]
    question: Callable[[Any], Any]
    answer: Callable[[Any], Any]
    error: Callable[[RefusalError, int], Any]
    statuses: Mapping[Reason, int] = field(default_factory=dict)
    strict: bool = False
    signs: frozenset[str] = frozenset()
    version: str = ""

    def read(self, body: Body) -> Any:
        """The question of a request's JSON object; raises RefusalError."""
        return self.question(convert(body, self.request, self.strict))

    def status(self, refusal: RefusalError) -> int:
        """The HTTP status of a refusal."""
        return self.statuses.get(refusal.reason, refusal.reason.status)
