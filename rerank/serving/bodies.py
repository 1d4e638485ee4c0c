"""Reads the bodies of requests: of bounded size, all together too, in bounded time, as JSON objects."""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request

from rerank.serving.dialects.fields import Body
from rerank.serving.limits import Limits
from rerank.serving.refusals import Reason, RefusalError

DISCARDED = 4
"""A body is read to its end, so that the client reads the refusal, up to so many times the limit."""
GZIP = 31
"""zlib's number of gzip's format."""
RETRY_AFTER = 1
"""Seconds after which other bodies may be gone."""


class Bodies:
    """Reads bodies, and counts the bytes of those that are in memory."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.bytes = limits, 0

    @contextlib.asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body of a request, which counts until the block ends.

        Raises RefusalError if it has another type, is too large, also decompressed, or late, or if all bodies together
        have too many bytes, and ClientDisconnect if its end never comes.
        """
        self._check_headers(request)
        limit, parts, size = self.limits.max_body_bytes, list[bytes](), 0
        with contextlib.ExitStack() as held:
            try:
                async with asyncio.timeout(self.limits.body_seconds):
                    async for part in request.stream():
                        size += len(part)
                        if size <= limit:
                            self._hold(len(part), held)
                            parts.append(part)
                        elif size <= DISCARDED * limit:
                            parts.clear()
                            held.close()
                        else:
                            break
            except TimeoutError:
                seconds = f"{self.limits.body_seconds:g} s"
                raise RefusalError(Reason.TIMED_OUT, f"the body did not arrive in {seconds}") from None
            if size > limit:
                raise self._too_large()
            sent = b"".join(parts)
            if request.headers.get("content-encoding", "identity").strip().lower() == "gzip":
                sent = await asyncio.to_thread(self._decompressed, sent)
                self._hold(len(sent), held)
            yield sent

    def _hold(self, count: int, held: contextlib.ExitStack) -> None:
        """Adds bytes to the count until the stack is closed; raises RefusalError if they exceed the limit."""
        if self.bytes + count > self.limits.max_bodies_bytes:
            reason = "the bodies of other requests fill the memory; try again"
            raise RefusalError(Reason.OVERLOADED, reason, RETRY_AFTER)
        self.bytes += count
        held.callback(self._release, count)

    def _release(self, count: int) -> None:
        self.bytes -= count

    def _check_headers(self, request: Request) -> None:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise RefusalError(Reason.MEDIA_TYPE, "Content-Type: expected application/json")
        if request.headers.get("content-encoding", "identity").strip().lower() not in ("identity", "gzip"):
            raise RefusalError(Reason.MEDIA_TYPE, "Content-Encoding: expected gzip or none")
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > DISCARDED * self.limits.max_body_bytes:
            raise self._too_large()

    def _decompressed(self, sent: bytes) -> bytes:
        """The content of a body in gzip's format, of bounded size too."""
        reader = zlib.decompressobj(GZIP)
        try:
            found = reader.decompress(sent, self.limits.max_body_bytes + 1)
        except zlib.error:
            found = b""
        if len(found) > self.limits.max_body_bytes:
            raise self._too_large()
        if not reader.eof or reader.unused_data:
            raise RefusalError(Reason.MALFORMED, "the body is not what Content-Encoding says: one whole gzip stream")
        return found

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
