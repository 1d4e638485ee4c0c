"""Commands in processes of their own that begin at once: they are forked from one that has imported everything."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

MAIN = "rerank.cli.main:main"
LIMIT = 600.0
"""Seconds; a command takes a few, or a minute on a busy machine, so one that takes longer hangs."""


@dataclass(frozen=True)
class Command:
    """A command and what happens to it.

    words: of the command line, or the arguments of `call`, a function module:name that takes a list of words.
    signals: pairs of the seconds after its start and the signal that it then gets.
    limit: the seconds after which it is killed, since it hangs.
    largest_file: the bytes that a file may have (RLIMIT_FSIZE); 0: any number.
    user: the number of the user that it runs as; 0: this one.
    """

    words: tuple[str, ...]
    call: str = MAIN
    signals: tuple[tuple[float, int], ...] = ()
    limit: float = LIMIT
    largest_file: int = 0
    user: int = 0

    def __str__(self) -> str:
        what = "rerank" if self.call == MAIN else self.call
        limits = [f"signal {number} after {after:.3f} s" for after, number in self.signals]
        limits += [f"files of at most {self.largest_file} bytes"] * bool(self.largest_file)
        limits += [f"as user {self.user}"] * bool(self.user)
        return " ".join([what, *self.words]) + (f"  [{', '.join(limits)}]" if limits else "")


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    code: its exit code, negative for a signal. hung: it took longer than its limit. orphans: processes that it started
    were alive seconds after its end.
    """

    code: int
    out: str
    err: str
    seconds: float
    hung: bool
    orphans: bool


class Forked:
    """Runs commands in processes that are forked from one; `environment` is added to that of all commands."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        settings = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scripts.campaign.fork_server"],
            cwd=Path(__file__).parents[2],
            env={**os.environ, **settings, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def warm_up(self, folder: Path, *commands: Sequence[str]) -> None:
        """Has the process run commands itself, so that it imports what they need.

        None of them may start Java, which does not survive a fork.
        """
        self._ask({"folder": str(folder), "warm_up": commands})

    def run(self, folder: Path, *commands: Command) -> list[Ended]:
        """Runs commands at the same time in `folder`, and gives how each of them ended."""
        answer = self._ask({"folder": str(folder), "commands": [asdict(command) for command in commands]})
        return [Ended(**ended) for ended in answer]

    def close(self) -> None:
        """Ends the process, and the commands that it runs."""
        if self.process.returncode is None:
            self.process.terminate()
            self.process.communicate()

    def _ask(self, question: dict[str, object]) -> list[dict[str, object]]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        try:
            answer = self.process.stdout.readline()
        except KeyboardInterrupt:
            self.close()
            raise
        if not answer:
            raise RuntimeError(f"the process that commands are forked from has ended ({self.process.wait()})")
        found: list[dict[str, object]] = json.loads(answer)
        return found
