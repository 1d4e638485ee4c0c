"""`rerank doctor`: what is ready."""

import shutil
from pathlib import Path

import pytest

from rerank.cli.main import main


def test_the_doctor_says_what_is_ready_and_what_is_not(here, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--config", "towns.toml"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ready"] * 7
    assert "15 queries, 15 of them judged" in lines[2]
    Path("new.tsv").write_text("n1\tgood\n")
    shutil.rmtree("towns/qrels")
    for words, expected in (
        ([], "15 queries, 0 of them"),
        (["--collection.queries", "new.tsv"], "1 queries, 0 of them"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["doctor", "--config", "towns.toml", *words])
        assert ended.value.code == 0
        assert expected in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--collection", "towns", "--encoder", "nowhere"])
    assert ended.value.code == 1
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("missing")] == [
        "encoder"
    ]
