"""RefusalError: a request that gets no scores, and why. Each dialect gives it a status and a body of its own."""

import traceback
from enum import Enum

from rerank.utils.progress import log


class Reason(Enum):
    """Why a request is refused: the HTTP status, where a dialect has no other, and what has happened."""

    MALFORMED = 400, "The body is not JSON, or not an object."
    INVALID = 422, "A field is missing, has a wrong type or a value out of bounds."
    UNKNOWN_FIELD = 422, "A field that the API does not have and refuses."
    EMPTY = 400, "There are no documents."
    TOO_LARGE = 413, "More bytes, documents or tokens than the limits allow."
    TIMED_OUT = 408, "The body did not arrive in time."
    MEDIA_TYPE = 415, "The body has another type than expected, or is compressed."
    UNAUTHORISED = 401, "The key is missing or wrong."
    OVERLOADED = 429, "The queue is full."
    FAILED = 500, "The model could not score the documents."
    INTERNAL = 500, "A mistake in this program."
    UNHEALTHY = 503, "The model's thread has ended."

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.value[0]


class RefusalError(Exception):
    """A request that gets no scores.

    The message says what was wrong and what is expected; it never contains a query or a document. `retry_after` are
    seconds after which an overloaded server may have space.
    """

    def __init__(self, reason: Reason, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.reason, self.retry_after = reason, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """Those of the response."""
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after else {}
        return headers | ({"WWW-Authenticate": "Bearer"} if self.reason is Reason.UNAUTHORISED else {})


def log_error(what: str, error: Exception) -> None:
    """Logs the type of an error and where it was raised, but not its message, which may have the text of a query."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error(f"{what}: {type(error).__name__}\n{frames.rstrip()}")
