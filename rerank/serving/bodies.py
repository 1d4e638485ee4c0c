"""What requests may take, and their bodies: of bounded size, in bounded time, as JSON objects."""

import asyncio
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from rerank.serving.refusals import Reason, RefusalError
from rerank.utils.errors import UserError

DISCARDED = 4
"""A body is read to its end, so that the client reads the refusal, up to so many times the limit."""

Body = dict[str, Any]
"""The JSON object of a request."""
Fields = TypeVar("Fields", bound=msgspec.Struct)


@dataclass(frozen=True)
class Limits:
    """The limits of a server.

    max_body_bytes: the bytes of a request; max_documents: its documents; max_queue: the documents of all requests that
    wait or are being scored; body_seconds: the seconds in which a body must arrive.
    """

    max_body_bytes: int = 16 * 2**20
    max_documents: int = 1000
    max_queue: int = 10_000
    body_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.max_documents > self.max_queue:
            raise UserError(
                f"--max-documents {self.max_documents}: one request would not fit into the queue; expected at most "
                f"--max-queue, {self.max_queue}"
            )


async def read_body(request: Request, limits: Limits) -> bytes:
    """The whole body of a request.

    Raises RefusalError if it has another type, is too large or late, and ClientDisconnect if its end never comes.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusalError(Reason.MEDIA_TYPE, "Content-Type: expected application/json")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise RefusalError(Reason.MEDIA_TYPE, "Content-Encoding: expected none")
    limit, parts, size = limits.max_body_bytes, list[bytes](), 0
    too_large = RefusalError(Reason.TOO_LARGE, f"the body has over {limit} bytes, the limit (--max-body-mib)")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > DISCARDED * limit:
        raise too_large
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > DISCARDED * limit:
                    break
                if size <= limit:
                    parts.append(part)
    except TimeoutError:
        raise RefusalError(Reason.TIMED_OUT, f"the body did not arrive in {limits.body_seconds:g} s") from None
    if size > limit:
        raise too_large
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
