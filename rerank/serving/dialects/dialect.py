"""Dialect: how a server's API asks for scores, answers, and refuses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rerank.serving.questions import Body, Question, Scored
from rerank.serving.refusals import Reason, RefusalError


@dataclass(frozen=True)
class Dialect:
    """The functions of an API.

    read: the question of a request's JSON object, or RefusalError is raised. answer: the JSON of the scores. error: the
    JSON of a refusal, given its status. statuses: those that differ from the reasons' own.
    """

    name: str
    read: Callable[[Body], Question]
    answer: Callable[[Scored], Any]
    error: Callable[[RefusalError, int], Any]
    statuses: Mapping[Reason, int] = field(default_factory=dict)

    def status(self, refusal: RefusalError) -> int:
        """The HTTP status of a refusal."""
        return self.statuses.get(refusal.reason, refusal.reason.status)
