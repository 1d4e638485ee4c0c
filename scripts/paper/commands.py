"""Runs `rerank` commands in this process, as the scripts that make several runs do."""

import contextlib
import io
import shlex
import sys

from rerank.cli.main import main


def rerank(*words: str) -> str:
    """Shows a command on standard error, runs it, and returns what it prints."""
    print(f"rerank {shlex.join(words)}", file=sys.stderr, flush=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        main(words)
    return printed.getvalue().strip()
