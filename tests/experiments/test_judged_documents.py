"""Judgments whose documents the collection does not have: an error before any work, or a warning with the share."""

import re
from pathlib import Path

import pytest

from rerank.cli.main import main
from tests.support.small_collection import command, exit_code, failed

QRELS = Path("towns/qrels/test.tsv")
NONE = (
    "towns: has none of the 90 judged documents that were looked up: query q0 has a judgment of passage-d0-0, and the "
    "first document is d0-0; compare the ids"
)
SOME = (
    "towns: has 36 of the 90 judged documents that were looked up (40%), not passage-d0-0 of query q0; compare the ids"
)


def rename_judged(queries):
    """Puts a word before the ids of the documents that these queries judge."""
    QRELS.write_text(re.sub(rf"^({'|'.join(queries)})\t", r"\1\tpassage-", QRELS.read_text(), flags=re.M))


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--config", "towns.toml"),
        ("sweep", "grid.toml", "--config", "towns.toml", "--fold", "1"),
        ("fit", "towns", "--encoder", "none"),
    ],
)
def test_judgments_of_other_documents_end_a_command_before_any_work(here, capsys, words):
    (here / "runs/towns/bm25.run").unlink()
    (here / "grid.toml").write_text("[[grid]]\n'loss.name' = ['hinge', 'smoothi']\n")
    rename_judged([f"q{number}" for number in range(15)])
    assert failed(capsys, *words) == f"rerank: {NONE}"
    assert not list(here.glob("runs/towns/**/*.run"))


def test_the_doctor_finds_judgments_of_other_documents(here, capsys):
    rename_judged([f"q{number}" for number in range(9)])
    assert exit_code("doctor", "--collection", "towns") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "collection" in line.split()[1]]
    assert line.endswith(f"; {SOME}")
    rename_judged([f"q{number}" for number in range(9, 15)])
    assert exit_code("doctor", "--collection", "towns") == 1
    assert f"missing  collection   {NONE}" in capsys.readouterr().out


def test_a_training_warns_when_less_than_half_of_the_judged_documents_exist(here, capsys):
    rename_judged([f"q{number}" for number in range(9)])
    main(command("--fold", "1", "--training.epochs", "1"))
    assert SOME in capsys.readouterr().err.splitlines()
    main(["fit", "towns", "--encoder", "none"])
    assert SOME in capsys.readouterr().err.splitlines()
