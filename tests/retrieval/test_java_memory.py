"""Java without enough memory: one line that says how to give it more, and no file of a crash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import SECONDS

CODE = """
import resource, sys
from pathlib import Path
from rerank.cli.main import run_and_exit
from rerank.retrieval.bm25 import build_index
from rerank.data.types import Document

if limit := int(sys.argv[1]):
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
run_and_exit(lambda: build_index([Document("d", "", "wing")], Path("index")))
"""


def index(folder: Path, options: str = "", limit: int = 0) -> subprocess.CompletedProcess:
    """Makes an index with JAVA_TOOL_OPTIONS, in an address space of at most `limit` bytes if it is not 0."""
    return subprocess.run(
        [sys.executable, "-c", CODE, str(limit)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env=os.environ | {"JAVA_TOOL_OPTIONS": options},
    )


def test_a_full_heap_is_one_line(tmp_path):
    """Some threads of Lucene end, and the others would wait for them forever."""
    done = index(tmp_path, "-Xmx5m")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("Picked up")]
    remedy = "set JAVA_TOOL_OPTIONS=-Xmx8g, or another size, to give it more"
    assert (done.returncode, done.stdout, lines) == (2, "", [f"rerank: Java ran out of memory; {remedy}"])
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".index")]


@pytest.mark.parametrize(("options", "limit"), [("-Xmx1k", 0), ("", 2**31)], ids=["heap", "address space"])
def test_a_machine_that_cannot_start_is_one_line(tmp_path, options, limit):
    done = index(tmp_path, options, limit)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith("rerank: ")
    assert ": cannot start: " in line
    assert "set JAVA_TOOL_OPTIONS=-Xmx8g" in line
    assert list(tmp_path.iterdir()) == []
