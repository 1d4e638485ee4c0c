"""What a request and all requests together may take."""

from dataclasses import dataclass

from rerank.serving.refusals import Reason, RefusalError
from rerank.utils.errors import UserError

BODIES = 16
"""Bodies of the largest size that may be in memory at once."""


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    max_body_bytes: the bytes of a request; max_documents: its documents; max_tokens: the tokens of all its passages,
    query and special tokens included; max_queue: the documents of all requests that wait or are being scored;
    body_seconds: the seconds in which a body must arrive.
    """

    max_body_bytes: int = 16 * 2**20
    max_documents: int = 1000
    max_tokens: int = 1_000_000
    max_queue: int = 10_000
    body_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.max_documents > self.max_queue:
            raise UserError(
                f"--max-documents {self.max_documents}: one request would not fit into the queue; expected at most "
                f"--max-queue, {self.max_queue}"
            )

    def check_count(self, count: int, what: str) -> None:
        """Raises RefusalError for a request with too many documents; `what` is their name in the message."""
        if count > self.max_documents:
            line = f"{count} {what}, {self.max_documents} is the limit (--max-documents)"
            raise RefusalError(Reason.TOO_LARGE, line)

    @property
    def max_bodies_bytes(self) -> int:
        """The bytes of all bodies that are being read or scored."""
        return BODIES * self.max_body_bytes
