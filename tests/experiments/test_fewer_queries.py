"""`--collection.train-queries` and `--training.validate-queries` as a user types them."""

import json
import re
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.runs import read_run
from tests.support.small_collection import command, exit_code, failed, write_split

FEWER = ("--collection.train-queries", "4", "--training.validate-queries", "2")


@pytest.fixture
def split(here):
    """The collection with a published split: 8 queries train, 3 validate, 4 test; nothing is retrieved yet."""
    write_split(here / "towns", range(8), range(8, 11), range(11, 15))
    for file in (here / "runs" / "towns").glob("*.*"):
        file.unlink()
    return here


def recorded(experiment, fold="foldsplit"):
    return json.loads((Path("runs/towns") / experiment / fold / "manifest.json").read_text())["fold"]


def test_as_many_queries_as_asked_train_and_validate(split):
    main(command(*FEWER))
    fold = recorded("smoothi")
    assert [len(fold[part]) for part in ("train", "valid", "test")] == [4, 2, 4]
    assert set(read_run("runs/towns/smoothi/foldsplit/valid.run")) == set(fold["valid"])
    (first_stage,) = Path("runs/towns").glob("bm25*.run")
    assert re.fullmatch(r"bm25-drawn=[0-9a-f]{8}\.run", first_stage.name)
    assert set(read_run(first_stage)) == {query_id for part in ("train", "valid", "test") for query_id in fold[part]}
    whole = json.loads(Path("runs/towns/folds.json").read_text())
    assert [len(whole[0][part]) for part in ("train", "valid", "test")] == [8, 3, 4]


def test_the_run_of_the_drawn_queries_can_be_retrieved_first(split, capsys):
    main(["retrieve", "--collection", "towns", *FEWER, "--seed", "3"])
    run = Path(capsys.readouterr().out.strip())
    written = run.stat().st_mtime_ns
    main(command(*FEWER, "--seed", "3", "--epochs", "1"))
    assert list(Path("runs/towns").glob("bm25*.run")) == [run]
    assert run.stat().st_mtime_ns == written


def test_experiments_with_all_queries_and_with_fewer_are_compared_and_verified(split, capsys):
    main(command("--epochs", "1"))
    main(command(*FEWER, "--epochs", "1", "--name", "fewer"))
    capsys.readouterr()
    runs = ["runs/towns/smoothi/all.run", "runs/towns/fewer/all.run"]
    main(["eval", *runs])
    assert "over 4 queries of fold split" in capsys.readouterr().out
    assert exit_code("verify", "runs/towns") == 0
    assert "Everything that is recorded holds." in capsys.readouterr().out
    assert "there collection.train_queries = 4; here collection.train_queries = 5" in failed(
        capsys, *command("--collection.train-queries", "5", *FEWER[2:], "--epochs", "1", "--name", "fewer")
    )


def test_more_queries_than_there_are_change_nothing(here):
    main(command("--epochs", "1", "--fold", "1"))
    main(command("--epochs", "1", "--fold", "1", "--collection.train-queries", "100", "--name", "more"))
    test_runs = [Path("runs/towns") / name / "fold1" / "test.run" for name in ("smoothi", "more")]
    assert read_run(test_runs[0]) == read_run(test_runs[1])
    assert [file.name for file in Path("runs/towns").glob("bm25*.run")] == ["bm25.run"]


def test_the_folds_of_a_cross_validation_and_the_final_model_draw_their_own(here):
    main(command(*FEWER, "--epochs", "1", "--fold", "2"))
    main(command(*FEWER, "--epochs", "1", "--fold", "final"))
    for fold, tested in (("fold2", 3), ("final", 0)):
        assert [len(recorded("smoothi", fold)[part]) for part in ("train", "valid", "test")] == [
            4,
            2,
            tested,
        ]
