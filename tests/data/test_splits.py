"""Splits: drawn by a seedand published in a folder or below an id of ir_datasets."""

import random

import pytest

from rerank.data.collections import open_collection
from rerank.data.folds import final_fold, hold_out, merge_splits
from rerank.data.types import Fold
from rerank.utils.errors import UserError
from tests.support.small_collection import write_collection, write_qrels
from tests.support.small_ids import DOCUMENTS, write_ids

TOY = {
    "toy": {},
    "toy/train": {"q1": ["d1"], "q2": ["d2"], "q3": ["d3"]},
    "toy/dev": {"q3": ["d5"], "q4": ["d4"]},
    "toy/test": {"q5": ["d5"]},
}


@pytest.fixture
def folder(tmp_path):
    """A folder with a published split of 8, 2 and 4 queries."""
    folder = write_collection(tmp_path / "towns")
    for name, queries in (("train", range(8)), ("dev", range(8, 10)), ("test", range(10, 14))):
        write_qrels(folder / "qrels" / f"{name}.tsv", queries)
    return folder


def ids(*numbers):
    return tuple(f"q{number}" for number in numbers)


def split(train, valid, test):
    return (Fold("split", ids(*train), ids(*valid), ids(*test)),)


QUERIES = [str(number) for number in range(301, 351)]


@pytest.mark.parametrize(("queries", "held_out"), [(2, 1), (3, 1), (14, 1), (16, 2), (50, 5)])
def test_a_tenth_of_the_queries_validates_but_at_least_one(queries, held_out):
    train, valid = hold_out(QUERIES[:queries])
    assert len(valid) == held_out
    assert sorted(train + valid) == QUERIES[:queries]


def test_drawn_queries_depend_on_the_seed_and_not_on_the_order():
    train, valid = hold_out(QUERIES, seed=3)
    shuffled = random.Random(0).sample(QUERIES, len(QUERIES))
    assert [set(part) for part in hold_out(shuffled, seed=3)] == [set(train), set(valid)]
    assert hold_out(QUERIES, seed=4)[1] != valid
    assert hold_out(shuffled)[0] == tuple(query_id for query_id in shuffled if query_id in hold_out(QUERIES)[0])
    with pytest.raises(UserError, match="got 1 judged queries to train on; expected 2 or more, as one validates"):
        hold_out(["a", "a"])


def test_the_final_fold_has_every_query_and_tests_none():
    fold = final_fold(QUERIES, seed=1)
    assert (fold.name, fold.test) == ("final", ())
    assert (fold.train, fold.valid) == hold_out(QUERIES, 1)


def test_a_folder_with_train_dev_and_test(folder):
    collection = open_collection(str(folder))
    assert collection.folds == split(range(8), (8, 9), range(10, 14))
    assert collection.notes == (
        f"{folder}: published split: 8 queries train, 2 validate, 4 test; it is the fold split",
    )
    assert set(collection.qrels) == {f"q{number}" for number in range(14)}
    assert collection.qrels["q3"] == {f"d3-{place}": int(place % 3 == 0) for place in range(6)}


def test_without_dev_a_tenth_of_the_training_queries_validates(folder):
    (folder / "qrels" / "dev.tsv").unlink()
    collection = open_collection(str(folder))
    train, valid = hold_out(ids(*range(8)))
    assert collection.folds == (Fold("split", train, valid, ids(*range(10, 14))),)
    assert "7 queries train, 1 validate of the training queries, drawn at random" in collection.notes[0]


def test_test_alone_is_no_split_and_other_files_are_named(folder):
    (folder / "qrels" / "train.tsv").rename(folder / "qrels" / "training.tsv")
    collection = open_collection(str(folder))
    assert set(collection.qrels) == set(ids(*range(10, 14)))
    (note,) = collection.notes
    assert note.startswith(f"{folder}: in qrels/, dev.tsv, training.tsv are not used; a published split needs")
    assert not collection.folds


def test_a_query_of_two_parts_tests_or_validates_and_is_counted(folder):
    write_qrels(folder / "qrels" / "dev.tsv", [7, 8, 10, 11])
    write_qrels(folder / "qrels" / "train.tsv", range(9), relevant=(1,))
    collection = open_collection(str(folder))
    assert collection.folds == split(range(7), (7, 8), range(10, 14))
    assert collection.notes[:-1] == (
        f"{folder}: 2 validation queries are test queries too: used as these alone",
        f"{folder}: 2 training queries are validation queries too: used as these alone",
    )
    assert collection.qrels["q0"]["d0-1"] == 1  # the judgments of train.tsv
    assert collection.qrels["q7"]["d7-1"] == 0  # those of dev.tsv


def test_every_training_query_in_another_part_is_refused(folder):
    write_qrels(folder / "qrels" / "train.tsv", [10, 8])
    with pytest.raises(UserError, match="all its training queries validate or test too, so none is left to train on"):
        open_collection(str(folder)).folds  # noqa: B018
    with pytest.raises(UserError, match="towns: all its training queries"):
        merge_splits({"train": {}, "test": {"q1": {"d1": 1}}}, "towns")


def test_a_judged_query_without_a_text_is_named(folder):
    with (folder / "qrels" / "dev.tsv").open("a") as file:
        file.write("q99\td1-1\t1\n")
    with pytest.raises(UserError, match=r"qrels: judges query q99, which is not in .*queries\.jsonl"):
        open_collection(str(folder)).queries  # noqa: B018


def test_an_id_with_parts_below_it(monkeypatch, tmp_path):
    write_ids(monkeypatch, tmp_path / "ids", TOY)
    collection = open_collection("toy")
    assert (collection.source, collection.name, collection.fingerprint) == ("toy", "toy", "toy")
    assert collection.queries == {f"q{number}": f"query q{number}" for number in range(1, 6)}
    assert collection.folds == split((1, 2), (3, 4), (5,))
    assert collection.qrels["q3"] == {"d5": 1}
    assert collection.notes[0] == "toy: 1 training queries are validation queries too: used as these alone"
    assert [document.text for document in collection.get(["d3"])] == [DOCUMENTS["d3"]]
    collection.expect_judgments()
    assert (open_collection("toy/dev").notes, open_collection("toy/dev").folds) == ((), ())


def test_the_dev_queries_of_an_id_without_judged_test_queries_test(monkeypatch, tmp_path):
    write_ids(monkeypatch, tmp_path / "ids", {id_: judged for id_, judged in TOY.items() if id_ != "toy/test"})
    collection = open_collection("toy")
    assert collection.folds == (Fold("split", *hold_out(ids(1, 2)), ids(3, 4)),)
    assert collection.notes[0] == "toy: no judged queries in toy/test, so those of toy/dev test"
