"""Reads the bodies of requests: of bounded size, all together too, in bounded time, as JSON objects."""

import asyncio
import contextlib
from collections.abc import Iterator

import msgspec
from starlette.requests import Request

from rerank.serving.limits import Limits
from rerank.serving.questions import Body
from rerank.serving.refusals import ClientGoneError, Reason, RefusalError

DISCARDED = 4
"""A body is read to its end, so that the client reads the refusal, up to so many times the limit."""
RETRY_AFTER = 1
"""Seconds after which other bodies may be gone."""


class Bodies:
    """Counts the bytes of all bodies that are in memory."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.bytes = limits, 0

    @contextlib.contextmanager
    def held(self) -> Iterator["Held"]:
        """One body's part of the count, which ends with the block."""
        held = Held(self)
        try:
            yield held
        finally:
            held.release()


class Held:
    """The bytes of one body."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies, self.bytes = bodies, 0

    def add(self, count: int) -> None:
        """Counts more bytes; raises RefusalError if all bodies together have too many."""
        if self.bodies.bytes + count > self.bodies.limits.max_bodies_bytes:
            raise RefusalError(
                Reason.OVERLOADED, "the bodies of other requests fill the memory; try again", RETRY_AFTER
            )
        self.bodies.bytes += count
        self.bytes += count

    def release(self) -> None:
        """The bytes are no longer in memory."""
        self.bodies.bytes -= self.bytes
        self.bytes = 0


def check_headers(request: Request, limits: Limits, expected: str = "application/json") -> None:
    """Raises RefusalError for another type than expected, a compressed body, and one far over the limit of bytes."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != expected:
        raise RefusalError(Reason.MEDIA_TYPE, f"Content-Type: expected {expected}")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise RefusalError(Reason.MEDIA_TYPE, "Content-Encoding: expected none, as bodies are not decompressed")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > DISCARDED * limits.max_body_bytes:
        raise _too_large(limits)


async def read_body(request: Request, held: Held) -> bytes:
    """The whole body; raises RefusalError if it is too large or late, and ClientGoneError if its end never comes."""
    limits = held.bodies.limits
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(limits.body_seconds):
            while more and size <= DISCARDED * limits.max_body_bytes:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                part, more = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                if size > limits.max_body_bytes:
                    parts.clear()
                    held.release()
                else:
                    held.add(len(part))
                    parts.append(part)
    except TimeoutError:
        raise RefusalError(Reason.TIMED_OUT, f"the body did not arrive in {limits.body_seconds:g} s") from None
    if size > limits.max_body_bytes:
        raise _too_large(limits)
    return b"".join(parts)


def parse(body: bytes) -> Body:
    """The JSON object of a body; raises RefusalError for anything else."""
    try:
        parsed = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:  # the message has no part of the body in it
        raise RefusalError(Reason.MALFORMED, f"the body is not JSON in UTF-8: {error}") from None
    if not isinstance(parsed, dict):
        raise RefusalError(Reason.MALFORMED, "the body is JSON, but not an object")
    return parsed


def _too_large(limits: Limits) -> RefusalError:
    return RefusalError(
        Reason.TOO_LARGE, f"the body has over {limits.max_body_bytes} bytes, the limit (--max-body-mib)"
    )
