"""Run folders of version 0.1.0 are still read: names of settings, measures and folders, manifests, models."""

import shutil
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.trec import read_run
from rerank.runs import CollectionFolder, read_results, verify
from tests.support.paths import ROOT

TOWNS = CollectionFolder(Path("runs/towns"))
WARM = TOWNS.experiment("warm")


@pytest.fixture
def old(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "tests" / "fixtures" / "version_0_1_0", tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def test_its_results_hold(old):
    verification = verify(TOWNS.path)
    assert verification.holds, verification.table
    assert verification.table.count("holds") >= 4
    assert "not checked" not in verification.table


def test_its_results_are_evaluated(old, capsys):
    main(["eval", str(TOWNS.path / "bm25.run"), str(WARM.all_run)])
    table = capsys.readouterr().out
    assert "0.8699 ± 0.0455" in table
    assert "0.6879 ± 0.0313" in table


def test_its_settings_have_todays_names(old):
    (experiment,) = read_results(TOWNS.path, "nDCG@20").experiments
    assert experiment.setting("pretraining.steps") == 4
    assert experiment.setting("training.max_tokens_per_forward") == "auto"
    assert experiment.folds[0].facts["pretraining"]["hash"] == "601d7ce987189c44"
    assert experiment.folds[0].facts["config"]["pretraining"]["held_out"] == 4
    assert experiment.folds[0].facts["max_tokens_per_forward"] == 4096


def test_it_has_a_report_and_charts(old):
    main(["report", str(TOWNS.path)])
    page = (TOWNS.path / "report.html").read_text()
    assert "601d7ce987189c44" in page
    assert "pretraining.steps" in page
    main(["plot", "learning", str(WARM.path), "--out", "learning.svg"])
    assert Path("learning.svg").is_file()


def test_its_checkpoint_scores_as_it_did(old):
    checkpoint = str(WARM.fold("1").checkpoint)
    main(["score", checkpoint, str(TOWNS.path / "bm25.run"), "--collection", "towns", "--out", "again.run"])
    again = read_run(Path("again.run"))
    for query_id, scores in read_run(WARM.fold("1").test_run).items():
        assert again[query_id] == pytest.approx(scores, abs=1e-5)


def test_its_finished_folds_are_not_trained_again(old, capsys):
    before = {fold.name: fold.test_run.stat().st_mtime_ns for fold in WARM.folds}
    main(["train", "--config", "towns.toml", "--collection.folds", "3", "--fold", "all", "--name", "warm"])
    printed = capsys.readouterr()
    assert printed.out.strip() == str(WARM.path)
    assert {fold.name: fold.test_run.stat().st_mtime_ns for fold in WARM.folds} == before
