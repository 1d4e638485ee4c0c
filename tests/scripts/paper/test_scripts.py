"""The scripts that make the paper's tables and figures, called as a user calls them."""

import os
import re
import runpy
import subprocess
import sys

import pytest

from rerank.data.trec import write_run
from rerank.data.types import Fold
from scripts.paper import combiner
from tests.support.paths import ROOT
from tests.support.patience import SECONDS
from tests.support.small_sweep import DOCUMENTS, QUERIES, write_cell, write_collection

SCRIPTS = ROOT / "scripts" / "paper"


@pytest.fixture
def call(monkeypatch, capsys):
    def run(script, *words):
        monkeypatch.setattr(sys, "argv", [script, *map(str, words)])
        capsys.readouterr()
        runpy.run_path(str(SCRIPTS / script), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture
def folder(tmp_path):
    """The variants of SmoothI over alpha and delta; ListNet, worse; an unknown loss that lacks a fold."""
    place = tmp_path / "small"
    place.mkdir()
    folds = write_collection(place)
    for alpha, valid in ((1.0, 1), (10.0, 0.5)):
        for metric in ("ndcg", "p@1"):
            settings = {"metric": metric, "alpha": alpha, "delta": 0.1}
            write_cell(place, f"smoothi-{metric[0]}-{alpha}", folds, [valid] * 5, [valid] * 5, **settings)
    write_cell(place, "listnet", folds, [0] * 5, [0] * 5, loss="listnet")
    write_cell(place, "other", folds[:3], [0] * 3, [0] * 3, loss="other")
    return place


def test_the_table_of_losses(call, folder):
    lines = call("table2.py", folder).splitlines()
    assert lines[2].split() == ["loss", "P@1", "P@5", "P@10", "nDCG@1", "nDCG@5", "nDCG@10", "nDCG", "AP"]
    assert lines[3].startswith("ListNet  0.000 ± 0.000†  0.200 ± 0.000*  0.100 ± 0.000*  0.000 ± 0.000†")
    assert lines[4].startswith("SmoothI  1.000 ± 0.000*  0.200 ± 0.000* ")
    notes = "\n".join(lines[5:])
    assert lines[0] == "small: mean ± standard error over 5 folds on the test queries"
    assert "6 cells." in notes
    assert "p < 0.05 / 1: Bonferroni" in notes
    assert "Left out, as a fold or a seed is missing: other." in notes
    markdown = call("table2.py", folder, "--format", "markdown")
    assert "| SmoothI | **1.000 ± 0.000** |" in markdown


def test_a_mistake_is_one_line(call, tmp_path):
    with pytest.raises(SystemExit, match=r"^table2.py: .*not a folder of runs: it has no qrels.txt"):
        call("table2.py", tmp_path)


def test_losses_of_different_folds_make_no_table(call, tmp_path):
    folds = write_collection(tmp_path)
    for name, of_it in (("smoothi", folds[:2]), ("listnet", folds[2:])):
        write_cell(tmp_path, name, of_it, [1] * 3, [1] * 3, loss=name)
    with pytest.raises(SystemExit, match="no loss has all 5 folds"):
        call("table2.py", tmp_path)


def test_scripts_start_as_the_documentation_starts_them():
    """As a module in a clone: started as a file, a script does not find the modules that the scripts share."""
    folders = [ROOT / folder for folder in ("docs", "scripts/paper", "configs")]
    texts = [
        file.read_text() for folder in folders for end in ("md", "py", "toml") for file in folder.rglob(f"*.{end}")
    ]
    started = {name for text in texts for name in re.findall(r"python -m scripts\.paper\.(\w+)", text)}
    scripts = {file.stem for file in SCRIPTS.glob("*.py") if 'if __name__ == "__main__"' in file.read_text()}
    results = (ROOT / "docs" / "results.md").read_text()
    finished = re.findall(r"[Cc]ommit\s(?:5cfe715|058b4a9|6e5ff6b) has (.*?) of `scripts\.paper`", results, re.DOTALL)
    assert len(finished) == 3
    assert scripts == started - set(re.findall(r"`(\w+)`", " ".join(finished)))
    assert not [text for text in texts if "python scripts/" in text]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, "-m", "scripts.paper.table2", "--help"]
    told = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert "usage: " in told.stdout


def test_a_combiner_has_a_row_for_each_loss_and_one_for_those_that_other_parts_choose(here, monkeypatch, capsys):
    monkeypatch.setattr(combiner, "LOSSES", combiner.LOSSES[:1])
    words = ["towns", "--encoder", "none", "--folder", "fits", "--depths", "4", "5", "--seeds", "1"]
    monkeypatch.setattr(sys, "argv", ["combiner.py", *words])
    combiner.main()
    printed = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in printed if line.startswith(("none", "smoothi"))]
    assert [row[0] for row in rows] == ["none", "smoothi", "smoothi", "smoothi,"]
    assert all(0 < float(row[-5]) <= 1 and abs(float(row[-2])) <= 1 and abs(float(row[-1])) < 1 for row in rows[1:-1])
    assert rows[-1][1] == "chosen"
    assert 0 < float(rows[-1][2]) <= 1


def test_losses_on_text_are_compared_with_the_first_stage(call, tmp_path):
    """Validation alone chooses alpha; the value of a row is the test mean of that cell over its seeds."""
    place = tmp_path / "small"
    place.mkdir()
    split = Fold("split", tuple(QUERIES[:10]), tuple(QUERIES[10:20]), tuple(QUERIES[20:]))
    folds = write_collection(place, [split])
    for alpha, valid, test in ((1.0, 0.8, 0.5), (10.0, 0.2, 1.0)):
        write_cell(place, f"smoothi-{alpha}", folds, [valid], [test], alpha=alpha)
    for seed, test in ((0, 0.4), (1, 0.2)):
        write_cell(place, f"hinge-{seed}", folds, [0.5], [test], loss="hinge", seed=seed)
    first = tmp_path / "bm25.run"
    write_run(first, {query: {f"{query}-{i}": float(i) for i in range(DOCUMENTS)} for query in QUERIES}, "bm25")

    printed = call("table4.py", place, "--first-stage", first, "--measure", "P@1")

    lines = {line.split()[0]: line.split() for line in printed.splitlines() if line.strip()}
    assert lines["smoothi"][:6] == ["smoothi", "1", "0.0001", "2", "1", "0.5000"]
    assert lines["hinge"][:5] == ["hinge", "0.0001", "1", "2", "0.3000"]
    assert lines["first"][:3] == ["first", "stage", "0.0000"]
    assert "10 test queries" in printed
