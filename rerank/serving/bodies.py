"""What requests may take, and their bodies: of bounded size, all together too, in bounded time, as JSON objects."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from rerank.serving.refusals import Reason, RefusalError
from rerank.utils.errors import UserError

BODIES = 16
"""Bodies of the largest size that may be in memory at once."""
DISCARDED = 4
"""A body is read to its end, so that the client reads the refusal, up to so many times the limit."""
RETRY_AFTER = 1
"""Seconds after which other bodies may be gone."""

Body = dict[str, Any]
"""The JSON object of a request."""
Fields = TypeVar("Fields", bound=msgspec.Struct)


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


class Bodies:
    """Reads bodies, and counts the bytes of those that are in memory."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.bytes = limits, 0

    @contextlib.asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body of a request, which counts until the block ends.

        Raises RefusalError if it has another type, is too large or late, or if all bodies together have too many bytes,
        and ClientDisconnect if its end never comes.
        """
        self._check_headers(request)
        parts: list[bytes] = []
        try:
            try:
                async with asyncio.timeout(self.limits.body_seconds):
                    await self._read(request, parts)
            except TimeoutError:
                seconds = f"{self.limits.body_seconds:g} s"
                raise RefusalError(Reason.TIMED_OUT, f"the body did not arrive in {seconds}") from None
            yield b"".join(parts)
        finally:
            self._drop(parts)

    async def _read(self, request: Request, parts: list[bytes]) -> None:
        """Appends the parts of a body, and counts their bytes."""
        limit, size = self.limits.max_body_bytes, 0
        async for part in request.stream():
            size += len(part)
            if size > DISCARDED * limit:
                break
            if size > limit:
                self._drop(parts)
                continue
            if self.bytes + len(part) > BODIES * limit:
                reason = "the bodies of other requests fill the memory; try again"
                raise RefusalError(Reason.OVERLOADED, reason, RETRY_AFTER)
            self.bytes += len(part)
            parts.append(part)
        if size > limit:
            raise self._too_large()

    def _drop(self, parts: list[bytes]) -> None:
        self.bytes -= sum(map(len, parts))
        parts.clear()

    def _check_headers(self, request: Request) -> None:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise RefusalError(Reason.MEDIA_TYPE, "Content-Type: expected application/json")
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise RefusalError(Reason.MEDIA_TYPE, "Content-Encoding: expected none")
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > DISCARDED * self.limits.max_body_bytes:
            raise self._too_large()

    def _too_large(self) -> RefusalError:
        limit = self.limits.max_body_bytes
        return RefusalError(Reason.TOO_LARGE, f"the body has over {limit} bytes, the limit (--max-body-mib)")


def parse(body: bytes) -> Body:
    """The JSON object of a body; raises RefusalError for anything else."""
    try:
        parsed = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:  # the message has no part of the body in it
        raise RefusalError(Reason.MALFORMED, f"the body is not JSON in UTF-8: {error}") from None
    if not isinstance(parsed, dict):
        raise RefusalError(Reason.MALFORMED, "the body is JSON, but not an object")
    return parsed


def convert(body: Body, kind: type[Fields]) -> Fields:
    """The fields of a JSON object; "true" may be a boolean and "3" a number.

    Raises RefusalError, which names the field and never has its value.
    """
    try:
        return msgspec.convert(body, kind, strict=False)
    except msgspec.ValidationError as error:  # such as "Expected `str`, got `int` - at `$.query`"
        reason, _, place = str(error).partition(" - at `$")
        place = place.removeprefix(".").rstrip("`")
        if reason.startswith("Object missing required field") and not place:
            place, reason = reason.split("`")[1], "is missing"
        raise RefusalError(Reason.INVALID, f"{place}: {reason[0].lower()}{reason[1:]}") from None
