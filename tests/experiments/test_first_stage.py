"""BM25's run is used only if it is the one that was retrieved."""

from pathlib import Path

import pytest

from rerank.cli.main import main
from tests.support.small_collection import failed

RETRIEVE = ["retrieve", "--collection", "towns"]
RUN, ORIGIN = Path("runs/towns/bm25.run"), Path("runs/towns/bm25.json")


@pytest.mark.parametrize(
    "change", [lambda run: run[:-1], lambda run: run[: len(run) // 2], lambda run: run.replace(b" 1 ", b" 2 ", 1)]
)
def test_a_changed_run_is_refused(here, capsys, change):
    RUN.write_bytes(change(RUN.read_bytes()))
    line = failed(capsys, *RETRIEVE)
    assert "runs/towns: changed since it was retrieved: bm25.run: expected " in line
    assert line.endswith("; remove runs/towns/bm25.run to retrieve again")
    RUN.unlink()
    main(RETRIEVE)
    main(RETRIEVE)


@pytest.mark.parametrize("content", ["", "{", "null", "[]", '{"run": 1}', '{"run": {"bytes": "x"}}', "[" * 100_000])
def test_a_damaged_record_is_one_line(here, capsys, content):
    ORIGIN.write_text(content)
    line = failed(capsys, *RETRIEVE)
    assert line.startswith("rerank: runs/towns/bm25.json: ")
    assert line.endswith("; remove it and bm25.run to retrieve again")
