"""A headless Chromium that a test types into, by the DevTools protocol over a pipe: without a driver or a network."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.patience import SECONDS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
]  # fmt: skip
LIMIT = SECONDS
"""Seconds that a page may take to be as a test expects it."""


class Tab:
    """A tab of the browser; `complaints` are the errors and warnings of its pages."""

    def __init__(self, process: subprocess.Popen[bytes], writer: int, reader: int) -> None:
        self._process, self._writer, self._reader = process, writer, reader
        self._received, self._number, self._session = b"", 0, ""
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a command of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            if answer.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.complaints.append(json.dumps(answer["params"]))

    def open(self, url: str) -> None:
        """Goes to an address and waits until its page is there."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState == 'complete' && location.href != 'about:blank'")

    def type(self, text: str) -> None:
        """Types a text into the field that has the focus, and presses Enter."""
        self.call("Input.insertText", text=text)
        self.press("Enter", "\r")

    def press(self, key: str, text: str = "") -> None:
        """Presses a key, such as Tab."""
        code = {"Enter": 13, "Tab": 9}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def value(self, expression: str) -> Any:
        """The value of an expression of JavaScript in the page; None while there is no page."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait(self, expression: str) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + LIMIT
        while not self.value(expression):
            assert time.monotonic() < end, f"{expression}: not true after {LIMIT:.0f} s"
            time.sleep(0.05)

    def _next(self) -> Any:
        while b"\0" not in self._received:
            assert select.select([self._reader], [], [], LIMIT)[0], "the browser does not answer"
            received = os.read(self._reader, 2**16)
            assert received, f"the browser has ended: {self._process.wait(LIMIT)}"
            self._received += received
        first, _, self._received = self._received.partition(b"\0")
        return json.loads(first)


@contextlib.contextmanager
def open_tab(profile: Path, *flags: str) -> Iterator[Tab]:
    """A tab of a new browser, which is closed at the end; `profile` is a folder for its files."""
    (to_read, writer), (reader, to_write) = os.pipe(), os.pipe()
    # The browser reads file descriptor 3 and writes 4.
    shell = f'exec 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-; exec "$@"'
    words = ["bash", "-c", shell, "bash", str(CHROMIUM), *FLAGS, *flags, f"--user-data-dir={profile}"]
    with profile.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(words, pass_fds=(to_read, to_write), stdout=log, stderr=log)
    os.close(to_read)
    os.close(to_write)
    try:
        yield Tab(process, writer, reader)
    finally:
        os.close(writer)
        os.close(reader)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
