"""Models by the number of training queries, by their lists, and on other collections; with tiny collections."""

import json
import re
import shutil
import sys

import pytest

from rerank.pipelines import fit
from rerank.pipelines.stages import BM25Stage, DenseStage, FusionStage, NeighboursStage
from scripts.paper import __main__ as paper
from scripts.paper import training_curve, training_lists, transfer_encoder


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
    paper.main(["table4", "curve/3-0/runs/towns"])
    row = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("softmax"))
    assert row[4:6] == [trained, gain]
    training_curve.main()
    assert capsys.readouterr().out.splitlines()[-2] == eight
    assert {path: path.stat().st_mtime_ns for path in made} == made


def test_lists_are_drawn_mined_and_taught_from_the_same_ranking(split, monkeypatch, capsys):
    queries = split / "towns/queries.jsonl"  # BM25 finds nothing for one of the test queries
    texts = [json.loads(line) for line in queries.read_text().splitlines()]
    queries.write_text("".join(json.dumps(t | ({"text": "zzz"} if t["_id"] == "q14" else {})) + "\n" for t in texts))
    kinds = ["drawn", "mined-1-100", "taught"]
    words = ["towns", "--encoder", "encoder", "--folder", "lists", "--epochs", "1", "--kinds", *kinds]
    monkeypatch.setattr(sys, "argv", ["training_lists.py", *words, "--validate-queries", "2"])
    monkeypatch.setattr(training_lists, "TAUGHT_DOCUMENTS", 3)
    for module in training_curve, training_lists:
        monkeypatch.setattr(module, "LISTS", 8)
    training_lists.main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[-4:-1]]
    assert [row[0] for row in rows] == kinds
    assert {f"{float(row[2]) - float(row[3]):.3f}" for row in rows} == {f"{float(rows[0][2]) - float(rows[0][3]):.3f}"}
    (taught,) = split.glob("lists/runs/towns/teacher-*.jsonl")
    assert {len(json.loads(line)["doc_ids"]) for line in taught.read_text().splitlines()} <= {2, 3}
    mined = [json.loads(line) for line in (split / "lists/mined-1-100.jsonl").read_text().splitlines()]
    assert {len(of_list["doc_ids"]) for of_list in mined} <= {2, 3, 4}
    assert all(of_list["labels"][0] > 0 == max(of_list["labels"][1:]) for of_list in mined)


def test_an_encoder_of_one_collection_is_compared_on_another(home, split, monkeypatch, capsys):
    shutil.copytree(home / "towns", split / "others")
    words = ["towns", "others", "--encoder", "encoder", "--folder", "fits", "--lists", "8"]
    monkeypatch.setattr(sys, "argv", ["transfer_encoder.py", *words])
    monkeypatch.setattr(
        fit,
        "default_stages",
        lambda encoder, *others: {
            "bm25": BM25Stage(),
            "dense": DenseStage(encoder),
            "fused": FusionStage(("bm25", "dense")),
            "neighbours": NeighboursStage("fused"),
        },
    )
    transfer_encoder.main()
    first, model = capsys.readouterr().out, split / "fits/fine-tuned/encoder/model.safetensors"
    rows = [re.split("  +", line) for line in first.splitlines()[2:-1]]
    assert [row[:2] for row in rows[1:]] == [["others", stage] for stage in ("dense", "neighbours", "nested")]
    assert all(float(row[3]) - float(row[2]) == pytest.approx(float(row[4]), abs=2e-4) for row in rows[1:])
    trained = model.stat().st_mtime_ns
    transfer_encoder.main()
    assert (capsys.readouterr().out, model.stat().st_mtime_ns) == (first, trained)
