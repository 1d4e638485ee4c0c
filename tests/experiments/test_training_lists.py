"""`rerank train --training.lists`: whole lists, none of a validation or test query."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from rerank.cli.main import main
from rerank.config import Config, LossSettings, TrainingSettings
from rerank.data.lists import read_training_lists
from rerank.data.types import Fold
from rerank.experiments.fold_lists import lists_of_fold
from rerank.experiments.train import open_experiment
from tests.support.small_collection import command, epochs_of, exit_code, failed

LISTS = Path("lists.jsonl")


def write(*records):
    LISTS.write_text("".join(json.dumps(record) + "\n" for record in records))


def corpus():
    lines = Path("towns/corpus.jsonl").read_text().splitlines()
    return {line["_id"]: line["text"] for line in map(json.loads, lines)}


def mined(number, by_text=False):
    """A list of query `number`, with documents by id or by text: relevant, not relevant, and one of another query."""
    doc_ids = [f"d{number}-0", f"d{number}-1", f"d{(number + 1) % 15}-0"]
    if by_text:
        return {"query_id": f"q{number}", "documents": [corpus()[i] for i in doc_ids], "labels": [3.5, -1.25, -4]}
    return {"query_id": f"q{number}", "doc_ids": doc_ids, "labels": [3.5, -1.25, -4]}


def settings(loss="margin_mse", **training):
    return Config(
        collection="towns",
        encoder="encoder",
        loss=LossSettings(loss),
        training=TrainingSettings(lists=str(LISTS), device="cpu", **training),
    )


def manifest(name="margin_mse"):
    return json.loads(Path(f"runs/towns/{name}/fold1/manifest.json").read_text())


def test_lists_by_id_and_by_text_train_the_same_model(here, capsys):
    write(*(mined(number) for number in range(15)))
    words = ["--fold", "1", "--loss", "margin_mse", "--training.lists", str(LISTS)]
    main(command(*words))
    fold = json.loads(Path("runs/towns/folds.json").read_text())[0]
    said = capsys.readouterr().err
    assert "fold 1: 9 of 15 lists of lists.jsonl; left out: 6 of validation or test queries, 0 without" in said
    facts = manifest()["training_lists"]
    assert (facts["file"], facts["lists"], facts["trained_on"], facts["held_out"]) == ("lists.jsonl", 15, 9, 6)
    assert len(facts["sha256"]) == 64
    records = epochs_of(Path("runs/towns/margin_mse/fold1"))
    assert [record["documents"] for record in records] == [8 * 3] * 2
    assert all(0 < record["ndcg"] <= 1 for record in records)

    write(*(mined(number, by_text=True) for number in range(15)))
    main(command(*words, "--name", "texts"))
    runs = [Path(f"runs/towns/{name}/fold1/test.run").read_text() for name in ("margin_mse", "texts")]
    assert runs[0].replace(" margin_mse\n", " texts\n") == runs[1]
    assert {line.split()[0] for line in runs[1].splitlines()} == set(fold["test"])
    assert manifest("texts")["training_lists"]["sha256"] != facts["sha256"]
    assert manifest("texts")["texts"]["documents"] == 90 + len(
        {text for n in range(15) for text in mined(n, True)["documents"]}
    )


def test_lists_of_validation_and_test_queries_are_left_out_by_id_and_by_text(tmp_path):
    texts = {"a": "Wing flutter", "b": "drag of a  Wing", "c": "lift", "d": "lift "}
    lists = [
        {"query_id": "a"},
        {"query_id": "b"},
        {"query_id": "c"},
        {"query_id": "d"},
        {"query": "  DRAG of a wing\n"},
        {"query": "lift"},
        {"query": "drag of wings"},
    ]
    path = tmp_path / "lists.jsonl"
    path.write_text("".join(json.dumps({**line, "doc_ids": ["x", "y"], "labels": [1, 0]}) + "\n" for line in lists))
    file = read_training_lists(path, texts, "judgments")

    def used(fold, loss="hinge"):
        found, facts = lists_of_fold(file, fold, texts, loss)
        assert facts["held_out"] == len(lists) - len(found)
        return [file.lists.index(kept) for kept in found]

    assert used(Fold("1", ("a", "c"), ("b",), ())) == [0, 2, 3, 5, 6]
    assert used(Fold("1", ("a", "b"), (), ("d",))) == [0, 1, 4, 6]
    assert used(Fold("1", (), ("a",), ("c",)), "margin_mse") == [1, 4, 6]
    assert used(Fold("1", ("a", "b", "c", "d"), (), ())) == list(range(7))


def test_lists_without_a_relevant_document_are_left_out_for_a_loss_of_judgments(here):
    write(*({**mined(number), "labels": [2, 1, 0] if number % 2 else [0.5, 0, 0]} for number in range(15)))
    main(command("--fold", "1", "--loss", "hinge", "--training.lists", str(LISTS)))
    facts = manifest("hinge")["training_lists"]
    assert facts["without_relevant"] > 0
    assert facts["trained_on"] + facts["held_out"] + facts["without_relevant"] == 15
    assert facts["held_out"] == 6


def test_an_epoch_has_whole_lists_in_an_order_that_seed_and_epoch_decide(here):
    write(*({**mined(number), "labels": [number, 0.5, -number]} for number in range(15)))
    experiment = open_experiment(settings(lists_per_epoch="all"), "1")
    task = experiment.dataset.task(experiment.dataset.folds[0], experiment.accelerator)
    whole = {
        (found.query_id, frozenset(zip(found.doc_ids, found.labels, strict=True))) for found in task.lists["train"]
    }
    epochs = [task.training_lists(epoch) for epoch in (0, 1, 0)]
    for epoch in epochs:
        assert len(epoch) == 9
        assert {(c.query_id, frozenset(zip(c.doc_ids, c.labels, strict=True))) for c in epoch} == whole
    assert epochs[0] == epochs[2]
    assert [c.query_id for c in epochs[0]] != [c.query_id for c in epochs[1]]
    assert len({c.doc_ids.index(f"d{c.query_id[1:]}-0") for epoch in epochs for c in epoch}) > 1

    experiment = open_experiment(settings(lists_per_epoch=4), "1")
    task = experiment.dataset.task(experiment.dataset.folds[0], experiment.accelerator)
    some = [task.training_lists(epoch) for epoch in range(9)]
    assert [len(epoch) for epoch in some] == [4] * 9
    asked = [c.query_id for epoch in some for c in epoch]
    assert {asked.count(query_id) for query_id in asked} == {4}  # 36 lists: every one four times


def write_data_set(*records):
    Path("lists").mkdir(exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(list(records)), "lists/train.parquet")


@pytest.mark.parametrize(("name", "write"), [("lists.jsonl", write), ("lists", write_data_set)])
def test_a_file_or_a_data_set_of_other_lists_does_not_pass_verification(here, capsys, name, write):
    write(*(mined(number) for number in range(15)))
    main(command("--fold", "1", "--loss", "margin_mse", "--training.lists", name))
    assert exit_code("verify", "runs/towns/margin_mse/fold1") == 0
    write(*(mined(number) for number in range(14)))
    assert exit_code("verify", "runs/towns/margin_mse/fold1") == 1
    assert f"{name}: expected SHA-256" in capsys.readouterr().out


TAUGHT = "--loss margin_mse --training.lists lists.jsonl"
MISTAKES = [
    ("--loss margin_mse", [], "--loss margin_mse: learns from a teacher's scores, not from judgments"),
    ("--training.lists towns", [], "towns: has no file of a data set; expected .arrow or .parquet files"),
    (f"{TAUGHT} --training.measure loss", [{}], "--training.measure loss: margin_mse needs a teacher's scores"),
    ("--training.lists lists.jsonl", [{}], "lists.jsonl:1: expected judgments from 0 on under 'labels'"),
    (TAUGHT, [{}, {"query_id": "q99"}], "lists.jsonl:2: the collection has no query q99"),
    (TAUGHT, [{}, {"doc_ids": ["d0-0", "d0-1", "d99-0"]}], "has no document d99-0; the run, judgments or lists come"),
    ("--training.lists lists.jsonl", [{"labels": [0, 0.5, 0]}], "fold 1 can train on none of its 1 lists"),
]
"""Flags, the changes of the lists in the file, and what the line says."""


@pytest.mark.parametrize(("flags", "lines", "expected"), MISTAKES)
def test_a_mistake_is_one_line_and_nothing_is_trained(here, capsys, flags, lines, expected):
    write(*({**mined(number), **line} for number, line in enumerate(lines)))
    assert expected in failed(capsys, *command("--fold", "1", *flags.split()))
    assert not list(Path("runs").rglob("state"))
