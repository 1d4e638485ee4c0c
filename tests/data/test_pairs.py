"""Pairs and triples as a collection and as training lists: a JSONL file, and data set folders of Hugging Face."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from rerank.cli.main import main
from rerank.data.collections import open_collection
from rerank.data.lists import read_training_lists
from rerank.data.records import text_id
from tests.support.small_collection import failed

ROWS = [
    {"anchor": "wing drag", "positive": "Drag of a wing.", "negative": "Heat of a shell."},
    {"anchor": "wing drag", "positive": "A wing has drag.", "negative": "Drag of a wing."},
    {"anchor": "heat", "positive": "Heat of a shell.", "negative": "A wing has drag."},
]


def write_arrow(folder, rows, name="data-00000-of-00001"):
    """As Dataset.save_to_disk: one Arrow stream."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_stream(str(folder / f"{name}.arrow"), table.schema) as writer:
        writer.write_table(table)


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def sources(home):
    write_jsonl(home / "triples.jsonl", ROWS)
    write_arrow(home / "saved", ROWS)
    write_arrow(home / "saved", [{"upper": "HEAT"}], "cache-0123456789abcdef")  # of Dataset.map
    (home / "hub").mkdir()
    parquet.write_table(pa.Table.from_pylist(ROWS), home / "hub" / "train-00000.parquet")
    return [home / name for name in ("triples.jsonl", "saved", "hub")]


def test_every_distinct_text_is_a_document_and_every_anchor_a_query(tmp_path):
    for source in sources(tmp_path):
        collection = open_collection(str(source))
        assert collection.queries == {text_id(text): text for text in ("wing drag", "heat")}
        texts = {document.text: document.doc_id for document in collection.documents()}
        assert len(texts) == 3
        judged = collection.qrels[text_id("wing drag")]
        assert judged == {
            text_id("Drag of a wing."): 1,  # positive in one row, negative in another
            text_id("A wing has drag."): 1,
            text_id("Heat of a shell."): 0,
        }
        lists = read_training_lists(source, {}, "judgments").lists
        assert [found.labels for found in lists] == [(1.0, 0.0)] * 3


def test_a_folder_with_splits_has_their_fold(tmp_path):
    for split, rows in (("train", ROWS), ("test", [{"anchor": "new", "positive": "New text."}])):
        write_arrow(tmp_path / "splits" / split, rows)
    (fold,) = open_collection(str(tmp_path / "splits")).folds
    assert fold.test == (text_id("new"),)
    assert {*fold.train, *fold.valid} == {text_id("wing drag"), text_id("heat")}


def test_a_malformed_row_is_one_line(tmp_path, capsys):
    write_jsonl(tmp_path / "bad.jsonl", [*ROWS, {"anchor": "x", "positive": 3}])
    line = failed(capsys, "retrieve", "--collection", str(tmp_path / "bad.jsonl"))
    assert "bad.jsonl:4: expected texts as in" in line
    write_jsonl(tmp_path / "keys.jsonl", [{"anker": "x", "positive": "y"}])
    line = failed(capsys, "retrieve", "--collection", str(tmp_path / "keys.jsonl"))
    assert 'keys.jsonl:1: expected texts as in {"anchor": …' in line
    assert line.endswith("got the keys anker, positive")
    (tmp_path / "keys.jsonl").write_text("")
    assert "keys.jsonl: has no query to search" in failed(
        capsys, "retrieve", "--collection", str(tmp_path / "keys.jsonl")
    )
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(Exception, match=r"a\.parquet: cannot be read"):
        read_training_lists(tmp_path / "cut", {}, "judgments")


def test_triples_train_without_another_folder(here, capsys):
    """`--collection` and `--training.lists` name the same file."""
    texts = {document.doc_id: document.text for document in open_collection("towns").documents()}
    towns = open_collection("towns")
    rows = []
    for query_id, grades in towns.qrels.items():
        by_grade = sorted(grades, key=grades.__getitem__)
        rows.append(
            {"anchor": towns.queries[query_id], "positive": texts[by_grade[-1]], "negative": texts[by_grade[0]]}
        )
    write_jsonl(Path("triples.jsonl"), rows)
    words = ["--collection", "triples.jsonl", "--training.lists", "triples.jsonl", "--encoder", "encoder"]
    main(["train", *words, "--fold", "1", "--epochs", "1", "--loss", "hinge", "--device", "cpu"])
    facts = json.loads(Path("runs/triples/hinge/fold1/manifest.json").read_text())["training_lists"]
    assert facts["lists"] == len(rows)
    assert facts["held_out"] > 0
