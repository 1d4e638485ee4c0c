"""Runs the code of a page, block by block, in a copy of the stand-ins; each page has a process of its own."""

import contextlib
import importlib
import os
import runpy
import shlex
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rerank.cli.main import main
from scripts.benchmarks.serving_load import server_process
from scripts.pages.blocks import PYTHON, SHELL, Block, commands_of
from scripts.pages.world import QUICK, TRAININGS, write_files, write_inputs

LAST = 15
"""Lines of the output that a failure shows."""
TRAINING = ("train", "sweep", "distill")
"""Commands that take the flags QUICK."""
OPERATORS = {"|", ">", ">>", "<", "&&", ";"}
"""Words that only a shell knows."""
ADDRESS = "127.0.0.1:8080"
"""The server of `rerank serve`, as pages write it."""


@dataclass
class Report:
    """What came of a page: how many blocks ran and did not, processor seconds, and what each failure says."""

    page: str
    ran: int = 0
    not_run: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


class FailedError(Exception):
    """A command that did not end with exit code 0."""


def make_inputs(world: Path, root: Path) -> None:
    """The stand-ins that no command makes."""
    world.mkdir()
    os.chdir(world)
    with _output_in(world.parent / "inputs.log"):
        write_inputs(root)


def make_runs(world: Path, group: str) -> None:
    """Runs the commands of a group of TRAININGS, whose results pages begin with."""
    os.chdir(world)
    with _output_in(world.parent / f"{group}.log"):
        for words in TRAININGS[group]:
            main(words)


def finish(world: Path) -> None:
    os.chdir(world)
    write_files()


def run_page(blocks: Sequence[Block], world: Path, folder: Path) -> Report:
    """Runs the blocks of a page in `folder`, a new copy of `world`."""
    report = Report(blocks[0].page)
    shutil.copytree(world, folder)
    os.chdir(folder)
    os.environ["CURL_HOME"] = str(folder)
    sys.path.insert(0, "")
    log = folder.with_suffix(".log")
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.ExitStack() as servers, _output_in(log):
        for block in blocks:
            if block.file:
                Path(block.file).write_text(block.runnable, encoding="utf-8")
            if block.not_run or block.kind not in (SHELL, PYTHON):
                report.not_run += bool(block.not_run)
                continue
            start = log.stat().st_size
            try:
                _run_block(block, names, servers)
                _flush()
                output = log.read_bytes()[start:].decode(errors="replace")
                if missing := [text for text in block.prints if text not in output]:
                    raise FailedError(f"does not print {missing[0]!r}")
                report.ran += 1
            except BaseException as error:
                if not isinstance(error, FailedError):
                    traceback.print_exc()
                _flush()
                said = log.read_bytes()[start:].decode(errors="replace").replace("\r", "\n").splitlines()
                lines = [line for line in said if line.strip()][-LAST:]
                report.failures.append("\n    ".join([f"{block.place}: {type(error).__name__}: {error}", *lines]))
    used = os.times()
    report.seconds = used.user + used.system + used.children_user + used.children_system
    return report


def _run_block(block: Block, names: dict[str, Any], servers: contextlib.ExitStack) -> None:
    if block.kind == PYTHON and block.file:  # a module, such as a plug-in
        names |= vars(importlib.import_module(Path(block.file).stem))
        return
    if block.kind == PYTHON:
        exec(compile("\n" * (block.line - 1) + block.runnable, block.page, "exec"), names)
        return
    for command in commands_of(block.runnable):
        words = _expanded(command)
        print(f"$ {command}", flush=True)
        if words[:2] == ["rerank", "serve"]:
            names["address"] = servers.enter_context(_server(words[2:]))
        elif words[0] == "python" and words[1].startswith("examples/"):
            _example(words[1:])
        elif words[0] == "rerank" and "$" not in command and not OPERATORS.intersection(words):
            _rerank([*words[1:], *_quick(words)])
        else:
            code = subprocess.run(["bash", "-c", command.replace(ADDRESS, str(names.get("address", ADDRESS)))])
            if code.returncode:
                raise FailedError(f"{command}: exit code {code.returncode}")


def _example(words: Sequence[str]) -> None:
    """Runs a script of the folder examples, with its arguments, as `python` does."""
    kept, sys.argv = sys.argv, list(words)
    try:
        runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.argv = kept


def _rerank(words: Sequence[str]) -> None:
    try:
        main(words)
    except SystemExit as end:
        if end.code:
            raise FailedError(f"rerank {shlex.join(words)}: exit code {end.code}") from None


def _expanded(command: str) -> list[str]:
    """The words of a command, with the files that a word with a star stands for."""
    words = shlex.split(command)
    return [found for word in words for found in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]


def _quick(words: Sequence[str]) -> Sequence[str]:
    return QUICK if words[1] in TRAINING and "--epochs" not in words else ()


@contextlib.contextmanager
def _server(words: Sequence[str]) -> Iterator[str]:
    """The address of `rerank serve` with these words, at a free port."""
    given = list(words)
    if "--port" in given:
        del given[given.index("--port") : given.index("--port") + 2]
    with server_process(given[0], *given[1:]) as url:
        yield url.removeprefix("http://")


@contextlib.contextmanager
def _output_in(file: Path) -> Iterator[None]:
    """The output of this process and of those that it starts goes to a file."""
    kept = [os.dup(1), os.dup(2)]
    with file.open("wb") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    try:
        yield
    finally:
        _flush()
        for number, old in enumerate(kept, 1):
            os.dup2(old, number)
            os.close(old)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
