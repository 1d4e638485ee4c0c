"""The scripts that make the paper's tables and figures, called as a user calls them."""

import json
import os
import re
import subprocess
import sys

import pytest

from rerank.data.trec import write_run
from rerank.data.types import Fold
from scripts.paper import combiner
from scripts.paper.__main__ import main
from tests.support.paths import ROOT
from tests.support.patience import SECONDS
from tests.support.small_sweep import DOCUMENTS, QUERIES, write_cell, write_collection


@pytest.fixture
def call(capsys):
    def run(*words):
        capsys.readouterr()
        main([str(word) for word in words])
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
    lines = call("table2", folder).splitlines()
    assert lines[2].split() == ["loss", "P@1", "P@5", "P@10", "nDCG@1"]
    assert lines[6].split() == ["loss", "nDCG@5", "nDCG@10", "nDCG", "AP"]
    assert lines[3].startswith("ListNet  0.000 ± 0.000†  0.200 ± 0.000*  0.100 ± 0.000*  0.000 ± 0.000†")
    assert lines[4].startswith("SmoothI  1.000 ± 0.000*  0.200 ± 0.000* ")
    notes = "\n".join(lines[5:])
    assert lines[0] == "small: mean ± standard error over 5 folds on the test queries"
    assert "6 cells." in notes
    assert "p < 0.05 / 1: Bonferroni" in notes
    assert "Left out, as a fold or a seed is missing: other." in notes
    markdown = call("table2", folder, "--format", "markdown")
    assert "| SmoothI | **1.000 ± 0.000** |" in markdown


def test_a_mistake_is_one_line_with_exit_code_2(tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["table2", str(tmp_path)])
    assert re.match(r"scripts.paper table2: .*not a folder of runs: it has no qrels.txt", capsys.readouterr().err)
    with pytest.raises(SystemExit, match=r"^scripts.paper: table9: no such command; expected one of table1, table2"):
        main(["table9"])


def test_the_sizes_of_a_data_set(call, tmp_path):
    for fold in (1, 2, 3):
        for part, queries in (("train", 2), ("vali", 1), ("test", 1)):
            lines = [f"{d} qid:{part}{q} 1:0.{d} #docid = d{d}" for q in range(queries) for d in range(3 + fold)]
            (tmp_path / f"Fold{fold}").mkdir(exist_ok=True)
            (tmp_path / f"Fold{fold}" / f"{part}.txt").write_text("\n".join(lines) + "\n")
    head, row = call("table1", tmp_path).splitlines()
    assert head.split()[:2] == ["queries,", "train"]
    assert row.split() == [tmp_path.name, "2", "1", "1", "10", "5", "5"]


def test_the_time_of_an_epoch_leaves_the_first_one_out(call, folder):
    for seconds, cell in enumerate(sorted(folder.glob("*/fold1")), 2):
        records = [{"epoch": n, "valid": 0.0, "seconds": of} for n, of in enumerate((90, seconds, seconds), 1)]
        (cell / "log.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    lines = call("table3", folder).splitlines()
    assert lines[0].split() == ["loss", "small"]
    assert lines[1].split() == ["ListNet", "2.000"]
    assert lines[-2] == "Seconds per training epoch (median), without validation."


def test_the_figures_print_what_they_show(call, folder, tmp_path):
    printed = call("figure3", folder, "--out", tmp_path / "map.svg").splitlines()
    assert [line.split() for line in printed] == [
        ["alpha", "\\", "delta", "0.1"],
        ["1", "1.0000"],
        ["10", printed[2].split()[1]],
    ]
    assert float(printed[2].split()[1]) < 1
    printed = call("figure4", folder, "--out", tmp_path / "variants.svg").splitlines()
    assert printed[1].split()[:2] == ["P@1", "1.000"]
    assert printed[2].split()[:2] == ["NDCG", "1.000"]
    for name in ("map.svg", "variants.svg"):
        assert (tmp_path / name).read_text().rstrip().endswith("</svg>")


def test_losses_of_different_folds_make_no_table(tmp_path, capsys):
    folds = write_collection(tmp_path)
    for name, of_it in (("smoothi", folds[:2]), ("listnet", folds[2:])):
        write_cell(tmp_path, name, of_it, [1] * 3, [1] * 3, loss=name)
    with pytest.raises(SystemExit):
        main(["table2", str(tmp_path)])
    assert "no loss has all 5 folds" in capsys.readouterr().err


def test_scripts_start_as_the_documentation_starts_them():
    """As a module in a clone: started as a file, a script does not find the modules that the scripts share."""
    folders = [ROOT / folder for folder in ("docs", "scripts/paper", "configs")]
    texts = [
        file.read_text() for folder in folders for end in ("md", "py", "toml") for file in folder.rglob(f"*.{end}")
    ]
    started = {name for text in texts for name in re.findall(r"python -m scripts\.paper[. ](\w+)", text)}
    assert not {name for name in started if not (ROOT / "scripts" / "paper" / f"{name}.py").is_file()}
    assert not [text for text in texts if "python scripts/" in text]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, "-m", "scripts.paper", "table2", "--help"]
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
    write_cell(place, "long", folds, [0.5], [0.8], loss="softmax", lists=4)
    write_cell(place, "added", folds, [0.5], [0.7], loss="listnet", first_stage_weight=0.5)
    first = tmp_path / "bm25.run"
    write_run({query: {f"{query}-{i}": float(i) for i in range(DOCUMENTS)} for query in QUERIES}, first, "bm25")

    printed = call("table4", place, "--first-stage", first, "--measure", "P@1")

    lines = {line.split()[0]: line.split() for line in printed.splitlines() if line.strip()}
    assert lines["smoothi"][:6] == ["smoothi", "1", "0.0001", "2", "1", "0.5000"]
    assert lines["hinge"][:5] == ["hinge", "0.0001", "1", "2", "0.3000"]
    assert lines["softmax"][:8] == ["softmax", "4", "+", "2", "0.0001", "1", "1", "0.8000"]
    assert lines["listnet"][:7] == ["listnet", "first", "stage", "0.5", "0.0001", "1", "1"]
    assert lines["first"][:3] == ["first", "stage", "0.0000"]
    assert "10 test queries" in printed
