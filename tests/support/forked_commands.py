"""Commands in processes of their own that begin at once: they are forked from one that has imported everything.

python -m tests.support.forked_commands reads a JSON object per line: words (of a command), log (the file of what it
prints), signal and after (the seconds until it gets the signal; none if there is no signal), and answers each line
with its exit code, negative for a signal. A list of such objects is a list of commands that run at the same time.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.support.paths import ROOT


def start(command: dict) -> int:
    """The number of a process that runs the command."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        file = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        from rerank.cli.main import main

        main(command["words"])
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    """The program."""
    import torch

    import rerank.experiments.sweep.run  # noqa: F401 - what `train` and `retrieve` import, and before the forks

    torch.set_num_threads(1)
    for line in sys.stdin:
        commands = json.loads(line)
        processes = [start(command) for command in commands]
        timers = [
            threading.Timer(command["after"], os.kill, (process, signal.Signals(command["signal"])))
            for command, process in zip(commands, processes, strict=True)
            if command.get("signal")
        ]
        for timer in timers:
            timer.start()
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        for timer in timers:
            timer.cancel()
        print(json.dumps(codes), flush=True)


class Forked:
    """Runs commands in `folder`, in processes that are forked from one with everything imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked_commands"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *commands: dict) -> list[tuple[int, str]]:
        """The exit codes of commands that run at the same time, and what they print; the file of each is its log."""
        named = [{"log": f"log{number}", **command} for number, command in enumerate(commands)]
        self.process.stdin.write(json.dumps(named) + "\n")
        self.process.stdin.flush()
        codes = json.loads(self.process.stdout.readline())
        return [(code, (self.folder / command["log"]).read_text()) for code, command in zip(codes, named, strict=True)]

    def timed(self, *words: str) -> float:
        """Runs a command that ends well, and gives its seconds."""
        begin = time.monotonic()
        ((code, log),) = self.run({"words": words})
        assert code == 0, log
        return time.monotonic() - begin

    def close(self) -> None:
        """Ends the process."""
        self.process.communicate()


if __name__ == "__main__":
    serve()
