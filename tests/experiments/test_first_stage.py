"""BM25's run is used only if it is the one that was retrieved."""

from pathlib import Path

import pytest

from rerank.cli.main import main
from tests.support.small_collection import command, failed

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


@pytest.mark.parametrize("words", [RETRIEVE, command("--fold", "1")], ids=["retrieve", "train"])
def test_a_run_of_other_documents_is_refused(here, capsys, words):
    with Path("towns/corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "more", "title": "", "text": "alpha0"}\n')
    assert f"{RUN}: retrieved from other documents or queries than those of towns" in failed(capsys, *words)


@pytest.mark.parametrize("content", ["", "{", "null", "[]", '{"run": 1}', '{"run": {"bytes": "x"}}', "[" * 100_000])
def test_a_damaged_record_is_one_line(here, capsys, content):
    ORIGIN.write_text(content)
    line = failed(capsys, *RETRIEVE)
    assert line.startswith("rerank: runs/towns/bm25.json: ")
    assert line.endswith("; remove it and bm25.run to retrieve again")
