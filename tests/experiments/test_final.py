"""`rerank train --fold final`: the model to deploy, as a user types it."""

import json
import re
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.runs import read_run
from rerank.experiments import train as training
from tests.support.small_collection import command, epochs_of, exit_code, in_a_copy

EXPERIMENT = Path("runs/towns/smoothi")
FINAL = EXPERIMENT / "final"
QUERIES = [f"q{number}" for number in range(15)]


@pytest.fixture(scope="module")
def home(home, tmp_path_factory):
    """A copy of the collection with an experiment that has a finished fold."""
    with in_a_copy(home, tmp_path_factory) as folder:
        main(command("--fold", "1"))
    return folder


def verified(capsys, folder):
    capsys.readouterr()
    return exit_code("verify", str(folder)), capsys.readouterr().out


def test_every_judged_query_trains_or_validates_once(here, capsys):
    folds = {file: file.read_bytes() for file in Path("runs").rglob("*") if file.is_file()}
    main(command("--fold", "final"))
    told = capsys.readouterr()
    assert told.out == "runs/towns/smoothi\n"
    facts = json.loads((FINAL / "manifest.json").read_text())
    assert sorted(facts["fold"]["train"] + facts["fold"]["valid"]) == sorted(QUERIES)
    assert facts["fold"]["test"] == []
    assert set(read_run(FINAL / "valid.run")) == set(facts["fold"]["valid"])
    assert list(facts["outcome"]) == ["valid"]
    valid = [record["valid"] for record in epochs_of(FINAL)]
    assert facts["best_valid"] == max(valid)
    assert facts["best_epoch"] == valid.index(max(valid)) + 1
    found = {path.name for path in FINAL.iterdir()} - {"fold.lock"}
    assert found == {"checkpoint", "valid.run", "log.jsonl", "manifest.json"}
    assert {file: file.read_bytes() for file in folds} == folds  # the folds and what evaluation reads are untouched
    (FINAL / "state").mkdir()  # as a kill after the last file leaves it
    main(command("--fold", "final"))
    assert "smoothi, fold final: finished already" in capsys.readouterr().err
    assert not (FINAL / "state").exists()
    assert json.loads((FINAL / "manifest.json").read_text()) == facts


def test_a_crash_before_the_manifest_loses_nothing(here, capsys, monkeypatch):
    def crash(*arguments):
        raise OSError("crash")

    with monkeypatch.context() as patch:
        patch.setattr(training, "write_manifest", crash)
        with pytest.raises(OSError, match="crash"):
            main(command("--fold", "final"))
    assert (FINAL / "state").is_dir()
    main(command("--fold", "final"))
    assert "resuming after epoch 2" in capsys.readouterr().err
    assert len(epochs_of(FINAL)) == 2
    assert not (FINAL / "state").exists()


def test_verify_checks_it(here, capsys):
    main(command("--fold", "final"))
    main(command("--fold", "final", "--name", "alone"))
    for folder in (EXPERIMENT, FINAL, Path("runs/towns/alone"), Path("runs/towns")):
        code, table = verified(capsys, folder)
        assert code == 0
        assert "final " in table
    run = FINAL / "valid.run"
    run.write_text(re.sub(r" 1 \S+ ", " 1 9.5 ", run.read_text(), count=1))
    code, table = verified(capsys, FINAL)
    assert code == 1
    assert "valid.run: expected SHA-256" in table
