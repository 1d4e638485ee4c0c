"""The curve of trained cross-encoders over the number of training queries, on a tiny collection with a split."""

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


def test_each_size_is_trained_once_on_its_own_queries(split, monkeypatch, capsys):
    words = ["towns", "--encoder", "encoder", "--folder", "curve", "--sizes", "2", "8", "--draws", "1", "--epochs", "1"]
    monkeypatch.setattr(sys, "argv", ["training_curve.py", *words])
    monkeypatch.setattr(training_curve, "LISTS", 8)
    training_curve.main()
    head, two, eight = capsys.readouterr().out.splitlines()[-4:-1]
    assert head.split() == ["queries", "BM25", "trained", "−", "BM25", "p", "fused", "−", "BM25", "p"]
    (_, first, trained, gain, *_), numbers = two.split(), eight.split()
    assert float(trained) - float(first) == pytest.approx(float(gain), abs=2e-4)
    assert numbers[:2] == ["8", first]
    drawn = {line.split("\t")[0] for line in (split / "curve/2-0/towns/qrels/train.tsv").read_text().splitlines()[1:]}
    assert len(drawn) == 2
    assert "q0" not in drawn
    runs = {path: path.stat().st_mtime_ns for path in split.glob("curve/*/runs/towns/softmax/fold*/*.run")}
    assert runs
    training_curve.main()
    assert capsys.readouterr().out.splitlines()[-2] == eight
    assert {path: path.stat().st_mtime_ns for path in runs} == runs
