"""The memory of the Java virtual machine: too little of it ends the command with one line that says how to give more.

A thread of Lucene that runs out of memory may leave the others waiting for it forever, and pyjnius cannot start another
virtual machine in the same process. So the process ends.
"""

import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from rerank.utils.errors import UserError

REMEDY = "set JAVA_TOOL_OPTIONS=-Xmx8g, or another size, to give it more"
NOTICE = "Picked up "
"""How the line begins that Java prints for each variable with options."""
EXIT_CODE = 2


def options_for_shortage() -> list[str]:
    """Options of a virtual machine that ends this process, with one line, when its memory runs out.

    Java calls a shell, which writes to a pipe that a thread reads. If the thread cannot run, so that the pipe can still
    be written five seconds later, the shell ends the process. What Java itself prints of it is turned off; reports of
    crashes go to the folder of temporary files.
    """
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    threading.Thread(target=_end_when_told, args=(reader,), daemon=True, name="rerank-java-memory").start()
    tell = f"echo >&{writer}; exec >/dev/null 2>&1; sleep 5; echo >&{writer} && kill -9 %p"
    return [
        f"-XX:OnOutOfMemoryError={tell}",
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:-DisplayVMOutput",
        f"-XX:ErrorFile={tempfile.gettempdir()}/rerank-java-%p.log",
    ]


def _end_when_told(reader: int) -> None:
    if os.read(reader, 1):
        sys.stderr.write(f"rerank: Java ran out of memory; {REMEDY}\n")
        sys.stderr.flush()
        os._exit(EXIT_CODE)


def expect_start(java: Path, options: Sequence[str]) -> None:
    """Raises UserError if `java`, a program, cannot start with these options.

    In this process Java would end it without a word. A limit of the address space (`ulimit -v`) is what it leaves.
    """
    command = [str(java), *options, "-XX:+UnlockDiagnosticVMOptions", "-XX:+DisplayVMOutput", "-version"]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        left = max(0, limit - _address_space()) >> 10
        command = ["/bin/sh", "-c", 'ulimit -v "$0"; exec "$@"', str(left), *command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{java}: cannot start: {error}") from error
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if not line.startswith(NOTICE)]
        raise UserError(f"{java}: cannot start: {' '.join(said)[:300]}; {REMEDY}, or raise the limit (ulimit -v)")


def _address_space() -> int:
    """The bytes of this process's address space; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return 0
