"""RefusalError: a request that gets no scores, and why. Each dialect gives it a status and a body of its own."""

from enum import Enum


class Reason(Enum):
    """Why a request is refused."""

    MALFORMED = "malformed"
    """The body is not JSON, or not an object."""
    INVALID = "invalid"
    """A field is missing, has a wrong type or a value out of bounds."""
    EMPTY = "empty"
    """There are no documents."""
    TOO_LARGE = "too_large"
    """More bytes, documents or tokens than the limits allow."""
    TIMED_OUT = "timed_out"
    """The body did not arrive in time."""
    MEDIA_TYPE = "media_type"
    """The body is not application/json, or is compressed."""
    UNAUTHORISED = "unauthorised"
    """The token is missing or wrong."""
    OVERLOADED = "overloaded"
    """The queue is full."""
    FAILED = "failed"
    """The model could not score the documents."""
    INTERNAL = "internal"
    """A mistake in this program."""
    UNHEALTHY = "unhealthy"
    """The model thread has ended."""


STATUSES = {
    Reason.MALFORMED: 400,
    Reason.INVALID: 422,
    Reason.EMPTY: 400,
    Reason.TOO_LARGE: 413,
    Reason.TIMED_OUT: 408,
    Reason.MEDIA_TYPE: 415,
    Reason.UNAUTHORISED: 401,
    Reason.OVERLOADED: 429,
    Reason.FAILED: 500,
    Reason.INTERNAL: 500,
    Reason.UNHEALTHY: 503,
}
"""The HTTP status of each reason, where a dialect has no other."""


class RefusalError(Exception):
    """A request that gets no scores.

    The message says what was wrong and what is expected; it never contains a query or a document. `retry_after` are
    seconds after which an overloaded server may have space.
    """

    def __init__(self, reason: Reason, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.reason, self.retry_after = reason, retry_after


class ClientGoneError(Exception):
    """The client closed its connection before it had an answer."""
