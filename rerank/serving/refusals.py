"""RefusalError: a request that gets no answer, and why; with the response that says so."""

import traceback
from enum import Enum

from starlette.responses import JSONResponse

from rerank.utils.progress import log


class Reason(Enum):
    """Why a request is refused: the HTTP status, what TEI calls it, and what has happened."""

    MALFORMED = 400, "Validation", "The body is not JSON, or not an object."
    INVALID = 422, "Validation", "A field is missing, has a wrong type or a value out of bounds."
    EMPTY = 400, "Empty", "There are no documents."
    TOO_LARGE = 413, "Validation", "More bytes, documents or tokens than the limits allow."
    TIMED_OUT = 408, "Validation", "The body did not arrive in time."
    MEDIA_TYPE = 415, "Validation", "The body has another type than expected, or is compressed."
    UNAUTHORISED = 401, "Validation", "The key is missing or wrong."
    OVERLOADED = 429, "Overloaded", "The queue is full."
    FAILED = 500, "Backend", "The model could not score the documents."
    INTERNAL = 500, "Backend", "A mistake in this program."
    UNHEALTHY = 503, "Unhealthy", "The model's thread has ended."


class RefusalError(Exception):
    """A request that gets no answer.

    The message says what was wrong and what is expected; it never contains a query or a document. `retry_after` are
    seconds after which an overloaded server may have space.
    """

    def __init__(self, reason: Reason, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.status, self._kind, _ = reason.value
        self.headers = {"Retry-After": str(retry_after)} if retry_after else {}
        if reason is Reason.UNAUTHORISED:
            self.headers["WWW-Authenticate"] = "Bearer"

    def response(self) -> JSONResponse:
        """The line where the clients of TEI (`error`), Jina (`detail`) and Cohere (`message`) look for it."""
        line = str(self)
        body = {"error": line, "error_type": self._kind, "detail": line, "message": line}
        return JSONResponse(body, self.status, self.headers)


def log_error(what: str, error: Exception) -> None:
    """Logs the type of an error and where it was raised, but not its message, which may have the text of a query."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error(f"{what}: {type(error).__name__}\n{frames.rstrip()}")
