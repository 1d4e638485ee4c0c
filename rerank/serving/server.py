"""Runs the application with uvicorn until a signal arrives and the last request is answered."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from rerank.utils.errors import UserError
from rerank.utils.progress import log, print_result

KEEP_ALIVE = 65
"""Seconds that an idle connection stays open; the proxies before a server close theirs after 60."""

HEAD = 30
"""Seconds in which the head of a connection's first request, or of another one that has begun, must arrive."""

LAST_REQUEST = 1.0
"""Seconds that an idle connection stays open when the server stops, as a request may be on its way."""

OTHER_PORT = "take another with --port, 0 for any"
"""The remedy for a port that is in use."""


def open_socket(host: str, port: int, reuse_port: bool = False) -> socket.socket:
    """A bound socket that does not listen yet; with `reuse_port`, other servers may listen on the same port.

    Raises UserError if the address is in use or not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        expected = "expected 127.0.0.1, 0.0.0.0 or another of this machine"
        raise UserError(f"--host {host}: no such address; {expected}") from error
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise UserError(f"--host {host} --port {port}: {error.strerror}; {OTHER_PORT}") from error
    return bound


def read_keys(path: Path) -> tuple[str, ...]:
    """The keys in a file, one a line, stripped of white space; raises UserError if a line has no key."""
    expected = "expected a key on each line, of printable ASCII characters"
    try:
        keys = [line.strip() for line in path.read_text(encoding="ascii").strip().splitlines()]
    except OSError as error:
        raise UserError(f"--api-key-file {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"--api-key-file {path}: {error}; {expected}") from error
    if not keys or not all(key and key.isprintable() and " " not in key for key in keys):
        raise UserError(f"--api-key-file {path}: {expected}")
    return tuple(keys)


def address_of(bound: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if bound.family == socket.AF_INET6 else f"http://{host}:{port}"


class _Protocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol, which closes connections whose request does not arrive, and idle ones not at once at the end.

    `cycle` is the last request, which may be answered; None before the first one.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        asyncio.get_running_loop().call_later(HEAD, self._close_if_none_follows, None)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:  # it is a part of a head
            asyncio.get_running_loop().call_later(HEAD, self._close_if_none_follows, self.cycle)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self._has_part_of_head():  # it came with the request that is answered
            asyncio.get_running_loop().call_later(HEAD, self._close_if_none_follows, self.cycle)

    def _has_part_of_head(self) -> bool:
        """Whether a request has begun after the last one: h11 keeps its bytes, httptools gives it a scope."""
        return bool(self.conn.trailing_data[0]) if hasattr(self, "conn") else self.scope is not self.cycle.scope

    def _close_if_none_follows(self, cycle: object) -> None:
        """Closes the connection if no request has come after that of `cycle`, or none at all if it is None."""
        if self.cycle is cycle and not self.transport.is_closing():
            self.transport.close()

    def shutdown(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            super().shutdown()  # closes after the response
        elif not self.transport.is_closing():
            asyncio.get_running_loop().call_later(LAST_REQUEST, self._close_at_last)

    def _close_at_last(self) -> None:
        if not self.transport.is_closing():
            super().shutdown()


def _saying_close(app: ASGIApp, stopping: threading.Event) -> ASGIApp:
    """The application, whose responses say "Connection: close" from `stopping` on: clients open another connection."""

    async def saying_close(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_closing(message: Message) -> None:
            if message["type"] == "http.response.start" and stopping.is_set():
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await app(scope, receive, send_closing)

    return saying_close


@contextlib.contextmanager
def running(app: ASGIApp, bound: socket.socket, keep_alive: int = KEEP_ALIVE) -> Iterator[threading.Event]:
    """Serves within the block; at its end, accepts no connections and waits until requests in flight are answered.

    Yields an event that is set if the server ends early. Raises UserError if the socket cannot listen: another server
    may have bound the port in the meantime. uvicorn logs nothing, as its lines may contain queries.
    """
    stopping = threading.Event()
    config = uvicorn.Config(
        _saying_close(app, stopping),
        http=_Protocol,
        timeout_keep_alive=keep_alive,
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
    )
    server, ended, refused = uvicorn.Server(config), threading.Event(), list[OSError]()

    def serve() -> None:
        try:
            server.run(sockets=[bound])
        except OSError as error:
            refused.append(error)
        finally:
            ended.set()

    threading.Thread(target=serve, name="http", daemon=True).start()
    try:
        while not server.started and not ended.is_set():
            time.sleep(0.01)
        if refused:
            raise UserError(f"{address_of(bound)}: {refused[0].strerror}; {OTHER_PORT}") from refused[0]
        yield ended
    finally:
        stopping.set()
        server.should_exit = True
        # Thread.join, once interrupted by a signal, takes a running thread for ended in Python 3.11 (bpo-45274).
        ended.wait()


def serve_until_interrupted(app: ASGIApp, bound: socket.socket, line: str, keep_alive: int = KEEP_ALIVE) -> None:
    """Prints the line and serves until a KeyboardInterrupt, which is raised again when requests in flight are answered.

    uvicorn runs in a thread, so that the command line keeps its signal handlers: a second signal ends the process.
    """
    try:
        with running(app, bound, keep_alive) as ended:
            print_result(line)
            try:
                ended.wait()
            except KeyboardInterrupt:
                log.info("finishing the requests in flight")
                raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the server has stopped; every request that had arrived was answered") from None
    raise UserError("the HTTP server has ended; start it again")
