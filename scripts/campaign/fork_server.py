"""The process that commands are forked from: `scripts.campaign.forked` starts it and talks to it in lines of JSON."""

import contextlib
import ctypes
import importlib
import json
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.forks import own_progress_lock

PAUSE = 0.005
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE = 15.0
"""Seconds that the processes that a command started may live longer than it."""
SET_CHILD_SUBREAPER = 36
"""prctl's option (linux/prctl.h): processes whose parent has died become children of this one."""


@dataclass
class Running:
    """A command that runs: its process and the ends of its pipes."""

    process: int
    pipes: tuple[int, int]
    command: dict[str, Any]
    begin: float = field(default_factory=time.monotonic)
    sent: int = 0
    output: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    ended: dict[str, Any] | None = None

    def read(self) -> None:
        """Takes what the command has printed."""
        for pipe, output in zip(self.pipes, self.output, strict=True):
            with contextlib.suppress(BlockingIOError):
                while block := os.read(pipe, 2**16):
                    output += block

    def step(self) -> None:
        """Sends what is due, and notes the end."""
        self.read()
        passed = time.monotonic() - self.begin
        signals = self.command["signals"]
        while self.sent < len(signals) and signals[self.sent][0] <= passed:
            os.kill(self.process, signals[self.sent][1])
            self.sent += 1
        hung = passed > self.command["limit"]
        if hung:
            os.kill(self.process, signal.SIGKILL)
        found, status = os.waitpid(self.process, 0 if hung else os.WNOHANG)
        if found:
            seconds = time.monotonic() - self.begin
            self.read()
            self.ended = {
                "code": os.waitstatus_to_exitcode(status),
                "out": self.output[0].decode(errors="replace"),
                "err": self.output[1].decode(errors="replace"),
                "seconds": seconds,
                "hung": hung,
            }
            for pipe in self.pipes:
                os.close(pipe)


def start(command: dict[str, Any]) -> Running | None:
    """Starts a command; in the new process, None is returned when it has ended, or SystemExit raised."""
    ends = [os.pipe() for _ in range(2)]
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the new process has its own handlers
    process = os.fork()
    if process:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        for reading, writing in ends:
            os.close(writing)
            os.set_blocking(reading, False)
        return Running(process, (ends[0][0], ends[1][0]), command)
    own_progress_lock()
    os.setpgid(0, 0)  # Ctrl-C in the campaign's terminal is not for the command
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, (_, writing) in enumerate(ends, 1):
        os.dup2(writing, descriptor)
    for end in (end for pair in ends for end in pair):
        os.close(end)
    if command["largest_file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (command["largest_file"],) * 2)
    if command["user"]:
        os.setgid(command["user"])
        os.setuid(command["user"])
    module, _, name = command["call"].partition(":")
    getattr(importlib.import_module(module), name)(command["words"])
    return None


def run(commands: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """How commands end that are started together; None in the process of each of them."""
    running: list[Running] = []
    server = os.getpid()
    try:
        for command in commands:
            one = start(command)
            if one is None:
                return None
            running.append(one)
        while any(one.ended is None for one in running):
            for one in running:
                if one.ended is None:
                    one.step()
            time.sleep(PAUSE)
    except BaseException:
        for one in running if os.getpid() == server else ():
            if one.ended is None:
                os.kill(one.process, signal.SIGKILL)
        raise
    orphans = _end_orphans()
    return [{**one.ended, "orphans": orphans} for one in running if one.ended is not None]


def adopt_orphans() -> None:
    """Makes the processes that an ended command has left children of this one, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_orphans() -> bool:
    """Waits for the processes that ended commands have left, and kills them after a while; whether it had to."""
    end, killed = time.monotonic() + GRACE, False
    while True:
        try:
            found, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return killed
        if not found and time.monotonic() > end:
            killed = True
            for process in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                with contextlib.suppress(OSError):
                    os.kill(int(process), signal.SIGKILL)
        if not found:
            time.sleep(PAUSE)


def _warm_up(words: list[list[str]]) -> None:
    """Runs commands in this process, which prints nothing."""
    import torch

    import rerank.jobs.sweep.run  # noqa: F401 - what `train` and `retrieve` import
    from rerank.cli.main import main

    torch.set_num_threads(1)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):  # noqa: PTH123
        for one in words:
            with contextlib.suppress(SystemExit):
                main(one)


def serve() -> None:
    """The program."""
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the campaign, which ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    for line in sys.stdin:
        question = json.loads(line)
        os.chdir(question["folder"])
        if "warm_up" in question:
            _warm_up(question["warm_up"])
            answer: list[dict[str, Any]] | None = []
        else:
            answer = run(question["commands"])
        if answer is None:
            return
        os.chdir("/")  # a file system may be unmounted only when no process is in it
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
