"""The curve of trained cross-encoders over the number of training queries, on a tiny collection with a split."""

import re
import shutil
import sys

import pytest

from scripts.paper import training_curve


@pytest.fixture
def split(home, tmp_path, monkeypatch):
    """The collection `towns` with nine training queries, of which one has no relevant document, and three of each."""
    monkeypatch.chdir(tmp_path)
    for name in ("towns", "encoder"):
        shutil.copytree(home / name, name)
    head, *lines = (tmp_path / "towns/qrels/test.tsv").read_text().splitlines()
    of_query = {f"q{number}": [line for line in lines if line.startswith(f"q{number}\t")] for number in range(15)}
    of_query["q0"] = [line.replace("\t1", "\t0") for line in of_query["q0"]]
    for name, numbers in (("train", range(9)), ("dev", range(9, 12)), ("test", range(12, 15))):
        judged = [line for number in numbers for line in of_query[f"q{number}"]]
        (tmp_path / f"towns/qrels/{name}.tsv").write_text("\n".join([head, *judged]) + "\n")
    return tmp_path


def test_each_size_is_trained_and_fitted_once_on_its_own_queries(split, monkeypatch, capsys):
    words = ["towns", "--encoder", "encoder", "--folder", "curve", "--sizes", "3", "8", "--draws", "1", "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", ["training_curve.py", *words, "--figure", "curve.svg", "--validate-queries", "2"])
    monkeypatch.setattr(training_curve, "LISTS", 8)
    training_curve.main()
    head, three, eight = capsys.readouterr().out.splitlines()[-4:-1]
    assert re.split("  +", head)[:9] == [
        *("queries", "BM25", "trained", "− BM25", "p"),
        *("trained + BM25", "− BM25", "p", "rerank fit"),
    ]
    (_, first, trained, gain, *_), numbers = three.split(), eight.split()
    assert float(trained) - float(first) == pytest.approx(float(gain), abs=2e-4)
    assert numbers[:2] == ["8", first]
    assert float(numbers[11]) - float(numbers[8]) == pytest.approx(float(numbers[12]), abs=2e-4)
    assert "trained + fit" in (split / "curve.svg").read_text()
    for copy in ("curve/3-0", "curve/3-0/fit"):
        qrels = split / copy / "towns/qrels"
        drawn = {line.split("\t")[0] for line in (qrels / "train.tsv").read_text().splitlines()[1:]}
        assert len(drawn) == 3
        assert "q0" not in drawn
        assert (qrels / "dev.tsv").exists() == (copy == "curve/3-0")
    runs = split.glob("curve/*/runs/towns/softmax/fold*/*.run"), split.glob("curve/*/pipeline/manifest.json")
    made = {path: path.stat().st_mtime_ns for found in runs for path in found}
    assert len(made) == 6
    training_curve.main()
    assert capsys.readouterr().out.splitlines()[-2] == eight
    assert {path: path.stat().st_mtime_ns for path in made} == made
