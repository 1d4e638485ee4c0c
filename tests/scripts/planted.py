"""Functions that tests run as commands; a module that imports little, as every command imports it."""

import subprocess
import sys
import time
from pathlib import Path


def fail(words: list[str]) -> None:
    """A command with a fault."""
    raise OSError(f"planted {words[0]}")


def greet(words: list[str]) -> None:
    print(*words, Path.cwd().name)
    print("aside", file=sys.stderr)
    sys.exit(len(words))


def wait(words: list[str]) -> None:
    time.sleep(60)


def write(words: list[str]) -> None:
    Path("file").write_bytes(b"x" * 1000)


def leave_a_process(words: list[str]) -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
