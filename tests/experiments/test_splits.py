"""Published splits as a user types them: one fold, split, from training to the tables."""

import json
import re
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.runs import read_qrels, read_run
from tests.support.small_collection import command, exit_code, failed, write_qrels, write_split

EXPERIMENT = Path("runs/towns/smoothi")
PARTS = {"train": range(8), "dev": range(8, 10), "test": range(10, 14)}


@pytest.fixture
def split(here):
    """The collection with a published split of 14 of its 15 queries; nothing is retrieved yet."""
    write_split(here / "towns", **PARTS)
    for file in (here / "runs" / "towns").glob("*.*"):
        file.unlink()
    return here


def names(part):
    return [f"q{number}" for number in PARTS[part]]


def test_the_split_is_the_only_fold_and_the_default(split, capsys):
    main(command())
    told = capsys.readouterr().err
    assert "towns: published split: 8 queries train, 2 validate, 4 test; it is the fold split\n" in told
    folds = json.loads(Path("runs/towns/folds.json").read_text())
    assert folds == [{"name": "split", "train": names("train"), "valid": names("dev"), "test": names("test")}]
    assert set(read_qrels("runs/towns/qrels.txt")) == {f"q{number}" for number in range(14)}
    assert set(read_run("runs/towns/bm25.run")) == {f"q{number}" for number in range(14)}
    fold = EXPERIMENT / "foldsplit"
    assert set(read_run(fold / "valid.run")) == set(names("dev"))
    assert set(read_run(fold / "test.run")) == set(names("test"))
    assert read_run(EXPERIMENT / "all.run") == read_run(fold / "test.run")
    before = (fold / "test.run").stat().st_mtime_ns
    main(command("--fold", "split"))
    assert (fold / "test.run").stat().st_mtime_ns == before
    assert failed(capsys, *command("--fold", "1")).endswith("fold 1: no such fold; expected split, all or final")


def test_its_results_are_those_of_the_test_queries_alone(split, capsys):
    main(command())
    main(command("--loss", "hinge", "--fold", "split"))
    runs = ["runs/towns/bm25.run", "runs/towns/hinge/all.run", "runs/towns/smoothi/all.run"]
    capsys.readouterr()
    for words in ([], ["--fold", "split"], ["--fold", "all"]):
        main(["eval", *runs, *words])
        table = capsys.readouterr().out
        assert "over 4 queries of fold split" in table
        assert all(re.search(rf"^{name} ", table, re.MULTILINE) for name in ("bm25", "hinge", "smoothi"))
    main(["eval", *(f"runs/towns/{name}/foldsplit/test.run" for name in ("hinge", "smoothi"))])
    table = capsys.readouterr().out
    assert "over 4 queries of fold split" in table
    assert re.search("^hinge ", table, re.MULTILINE)
    assert "fold 1: no such fold; expected one of split" in failed(capsys, "eval", *runs, "--fold", "1")
    assert exit_code("verify", "runs/towns") == 0
    assert re.search(r"smoothi/foldsplit +0\.\d{4} +holds", capsys.readouterr().out)
    main(["report", "runs/towns"])
    assert "4 queries of fold split" in Path("runs/towns/report.html").read_text()
    main(["plot", "learning", str(EXPERIMENT), "--out", "learning.svg"])
    assert Path("learning.svg").is_file()


def test_the_final_model_has_all_three_parts(split):
    main(command("--fold", "final", "--epochs", "1"))
    fold = json.loads((EXPERIMENT / "final" / "manifest.json").read_text())["fold"]
    assert sorted(fold["train"] + fold["valid"]) == sorted(f"q{number}" for number in range(14))


def test_experiments_of_another_seed_share_the_drawn_validation_queries(split, capsys):
    (split / "towns" / "qrels" / "dev.tsv").unlink()
    main(command("--epochs", "1"))
    assert "7 queries train, 1 validate of the training queries, drawn at random" in capsys.readouterr().err
    folds = Path("runs/towns/folds.json").read_text()
    main(command("--epochs", "1", "--seed", "1", "--name", "seed1"))
    assert Path("runs/towns/folds.json").read_text() == folds


def test_results_of_five_folds_are_not_mixed_with(split, capsys):
    train = split / "towns" / "qrels" / "train.tsv"
    train.rename("train.tsv")
    write_qrels(range(9, 14), split / "towns" / "qrels" / "test.tsv")
    main(command("--fold", "1", "--epochs", "1"))
    first_stage = Path("runs/towns/bm25.run").read_bytes()
    Path("train.tsv").rename(train)
    line = failed(capsys, *command("--name", "new"))
    assert "have other folds (1, 2, 3, 4, 5; now split); take another --output.folder, or go back to" in line
    assert Path("runs/towns/bm25.run").read_bytes() == first_stage
