"""Calls of functions in processes of their own."""

import gc
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any


def in_process(context: BaseContext, call: Callable[..., Any], *arguments: Any) -> Any:
    """Calls a function in a new process and gives what it returns; raises EOFError if the process dies before."""
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_send_result, args=(sending, call, *arguments))  # type: ignore[attr-defined]
    process.start()
    sending.close()
    try:
        return receiving.recv()
    finally:
        process.join()


def _send_result(sending: Connection, call: Callable[..., Any], *arguments: Any) -> None:
    gc.freeze()  # what was imported before: every training of a fold ends with a collection, of half a second
    sending.send(call(*arguments))
