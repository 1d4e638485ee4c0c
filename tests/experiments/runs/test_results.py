"""A folder of runs -> results; what is wrong with a folder is one line."""

import shutil

import pytest

from rerank.data.runs import read_run
from rerank.data.trec import ranked
from rerank.experiments.runs.results import open_results
from tests.support.small_collection import failed
from tests.support.small_results import DEPTH, FIRST_STAGE


def test_experiments_have_their_folds_and_the_candidates_that_they_re_ranked(folder):
    results = open_results(folder, "nDCG@5")
    good, poor = results.experiments
    assert (good.name, poor.name, results.measure) == ("good", "poor", "nDCG@5")
    assert [fold.name for fold in good.folds] == ["1", "2", "3"]
    assert good.run == read_run(folder / "good" / "all.run")
    first = read_run(folder / f"{FIRST_STAGE}.run")
    assert {q: ranked(scores) for q, scores in good.candidates().items()} == {
        q: ranked(first[q])[:DEPTH] for q in first
    }


def test_unfinished_folds_have_a_log_and_no_queries(folder):
    (folder / "poor" / "fold2" / "test.run").unlink()
    poor = open_results(folder, "AP").experiments[1]
    assert (
        poor.run.keys()
        == poor.candidates().keys()
        == read_run(folder / "poor" / "fold1" / "test.run").keys()
        | read_run(folder / "poor" / "fold3" / "test.run").keys()
    )
    assert poor.folds[1].history
    assert not poor.folds[1].run


def test_what_is_no_folder_of_runs_is_one_line(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = ["report"], ["plot", "depth", "--out", "depth.pdf"]
    for words in commands:
        line = failed(capsys, *words, str(folder.parent))
        assert f"{folder.parent}: not a folder of runs: it has no qrels.txt; expected {folder}" in line
    for path in folder.glob("*/fold*"):
        shutil.rmtree(path)
    for words in commands:
        assert "no experiment here has a finished fold" in failed(capsys, *words, str(folder))
    assert not (tmp_path / "depth.pdf").exists()


@pytest.mark.parametrize("words", [("report", "--qrels"), ("report", "--collection"), ("plot", "depth", "--qrels")])
def test_flags_of_run_files_are_refused_with_a_folder_of_runs(words, folder, tmp_path, capsys):
    *command, flag = words
    line = failed(capsys, *command, str(folder), flag, "towns", "--out", str(tmp_path / "new.pdf"))
    assert f"{flag} towns: has no effect, as the folder {folder} has its own; leave it out" in line


def test_a_damaged_log_is_named_with_its_line(folder, capsys):
    with (folder / "good" / "fold1" / "log.jsonl").open("a") as log:
        log.write('{"epoch": 4, "lo\n')
    line = failed(capsys, "plot", "learning", str(folder / "good"), "--out", "learning.pdf")
    assert "fold1/log.jsonl:4: not JSON (" in line
    assert "expected the record of an epoch" in line


def test_first_stages_have_the_shortest_names_that_tell_them_apart(folder):
    results = open_results(folder, "AP")
    good, poor = results.experiments
    assert results.first_stage_names[good.name] == results.first_stage_names[poor.name] == FIRST_STAGE
    settings = folder / "poor" / "config.toml"
    settings.write_text(settings.read_text().replace('run = ""', f'run = "{folder / FIRST_STAGE}.run"'))
    assert open_results(folder, "AP").first_stage_names["poor"] == FIRST_STAGE
    settings.write_text(settings.read_text().replace(f"depth = {DEPTH}", "depth = 3"))
    results = open_results(folder, "AP")
    names = [results.first_stage_names[experiment.name] for experiment in results.experiments]
    assert names == [f"{folder / FIRST_STAGE}.run, first {depth}" for depth in (DEPTH, 3)]
    assert {len(scores) for scores in results.experiments[1].candidates().values()} == {3}
