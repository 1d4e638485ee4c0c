"""Folds: made or official, drawn by a seed, published in a folder or below an id of ir_datasets, and their file."""

import json
import random
from pathlib import Path

import pytest

from rerank.data.collections import open_collection
from rerank.data.folds import (
    draw_queries,
    final_fold,
    hold_out,
    make_folds,
    merge_splits,
    official_folds,
    read_folds,
    write_folds,
)
from rerank.data.types import Fold
from rerank.utils.errors import UserError
from tests.support.small_collection import write_collection, write_qrels, write_split
from tests.support.small_ids import DOCUMENTS, write_ids

QUERIES = [str(number) for number in range(301, 325)]


def test_every_query_is_tested_once_and_validated_once() -> None:
    folds = make_folds(QUERIES, k=5, seed=3)
    assert [fold.name for fold in folds] == ["1", "2", "3", "4", "5"]
    assert sorted(q for fold in folds for q in fold.test) == sorted(q for fold in folds for q in fold.valid) == QUERIES
    assert {len(fold.test) for fold in folds} == {4, 5}
    for i, fold in enumerate(folds):
        assert fold.valid == folds[i - 1].test
        assert sorted(fold.train + fold.valid + fold.test) == QUERIES


def test_folds_depend_on_the_seed_but_not_on_the_order() -> None:
    shuffled = random.Random(0).sample(QUERIES, len(QUERIES))
    assert make_folds(shuffled, 5, seed=3) == make_folds(QUERIES, 5, seed=3) != make_folds(QUERIES, 5, seed=4)
    for k in (0, 2, 25):
        with pytest.raises(UserError, match=f"folds: got {k} for 24 judged queries"):
            make_folds(QUERIES, k)


def test_prescribed_folds_test_i_and_validate_the_one_before() -> None:
    folds = official_folds([("a", ["1", "2"]), ("b", ["3"]), ("c", ["4"]), ("d", ["5"])])
    assert folds[0] == Fold("a", train=("3", "4"), valid=("5",), test=("1", "2"))
    assert folds[2] == Fold("c", train=("1", "2", "5"), valid=("3",), test=("4",))
    with pytest.raises(ValueError, match="fold a: queries 3 are in more than one split"):
        official_folds([("a", ["1"]), ("b", ["3"]), ("c", ["3"])])
    with pytest.raises(UserError, match="at least 3"):
        official_folds([("a", ["1"]), ("b", ["3"])])


def test_folds_file_is_plain_json_that_keeps_folds(tmp_path: Path) -> None:
    path, folds = tmp_path / "folds.json", [*make_folds(QUERIES), Fold("é", ("a",), ("é",), ("c",))]
    write_folds(path, folds)
    assert read_folds(path) == folds
    assert json.loads(path.read_text(encoding="utf-8"))[-1] == {
        "name": "é",
        "train": ["a"],
        "valid": ["é"],
        "test": ["c"],
    }
    assert len(path.read_text(encoding="utf-8").splitlines()) == len(folds) + 2


@pytest.mark.parametrize(
    "content",
    ["", "{", "[1]", '{"a": 1}', '[{"name": "1"}]', '[{"name": "1", "train": ["1"], "valid": [], "test": ["1"]}]'],
)
def test_bad_folds_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "folds.json"
    with pytest.raises(UserError, match=r"folds\.json: cannot be read: No such file"):
        read_folds(path)
    path.write_text(content)
    with pytest.raises(UserError, match=r"folds\.json: .*; expected a list of folds with name, train, valid and test"):
        read_folds(path)


def test_queries_are_drawn_by_the_seed_in_the_order_of_the_fold() -> None:
    fold = Fold("1", tuple(QUERIES[:12]), tuple(QUERIES[12:18]), tuple(QUERIES[18:]))
    drawn = draw_queries(fold, 5, 2, seed=3)
    assert (len(drawn.train), len(drawn.valid), drawn.test) == (5, 2, fold.test)
    assert [q for q in fold.train if q in drawn.train] == list(drawn.train)
    assert set(drawn.valid) < set(fold.valid)
    assert draw_queries(fold, 5, 2, seed=3) == drawn != draw_queries(fold, 5, 2, seed=4)
    assert draw_queries(fold, "all", 6, seed=3) == draw_queries(fold, 100, "all", seed=4) == fold


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
    write_split(folder, range(8), range(8, 10), range(10, 14))
    return folder


def ids(*numbers):
    return tuple(f"q{number}" for number in numbers)


def split(train, valid, test):
    return (Fold("split", ids(*train), ids(*valid), ids(*test)),)


JUDGED = [str(number) for number in range(301, 351)]


@pytest.mark.parametrize(("queries", "held_out"), [(2, 1), (3, 1), (14, 1), (16, 2), (50, 5)])
def test_a_tenth_of_the_queries_validates_but_at_least_one(queries, held_out):
    train, valid = hold_out(JUDGED[:queries])
    assert len(valid) == held_out
    assert sorted(train + valid) == JUDGED[:queries]


def test_drawn_queries_depend_on_the_seed_and_not_on_the_order():
    train, valid = hold_out(JUDGED, seed=3)
    shuffled = random.Random(0).sample(JUDGED, len(JUDGED))
    assert [set(part) for part in hold_out(shuffled, seed=3)] == [set(train), set(valid)]
    assert hold_out(JUDGED, seed=4)[1] != valid
    assert hold_out(shuffled)[0] == tuple(query_id for query_id in shuffled if query_id in hold_out(JUDGED)[0])
    with pytest.raises(UserError, match="got 1 judged queries to train on; expected 2 or more: one validates"):
        hold_out(["a", "a"])


def test_the_final_fold_has_every_query_and_tests_none():
    fold = final_fold(JUDGED, seed=1)
    assert (fold.name, fold.test) == ("final", ())
    assert (fold.train, fold.valid) == hold_out(JUDGED, 1)


def test_a_folder_with_train_dev_and_test(folder):
    collection = open_collection(str(folder))
    assert collection.folds == split(range(8), (8, 9), range(10, 14))
    assert collection.origin.judged.notes == (
        f"{folder}: published split: 8 queries train, 2 validate, 4 test; it is the fold split",
    )
    assert set(collection.qrels) == {f"q{number}" for number in range(14)}
    assert collection.qrels["q3"] == {f"d3-{place}": int(place % 3 == 0) for place in range(6)}


def test_without_dev_a_tenth_of_the_training_queries_validates(folder):
    (folder / "qrels" / "dev.tsv").unlink()
    collection = open_collection(str(folder))
    train, valid = hold_out(ids(*range(8)))
    assert collection.folds == (Fold("split", train, valid, ids(*range(10, 14))),)
    assert "7 queries train, 1 validate of the training queries, drawn at random" in collection.origin.judged.notes[0]


def test_test_alone_is_no_split_and_other_files_are_named(folder):
    (folder / "qrels" / "train.tsv").rename(folder / "qrels" / "training.tsv")
    collection = open_collection(str(folder))
    assert set(collection.qrels) == set(ids(*range(10, 14)))
    (note,) = collection.origin.judged.notes
    assert note.startswith(f"{folder}: in qrels/, dev.tsv, training.tsv are not used; a published split needs")
    assert not collection.folds


def test_a_query_of_two_parts_tests_or_validates_and_is_counted(folder):
    write_qrels([7, 8, 10, 11], folder / "qrels" / "dev.tsv")
    write_qrels(range(9), folder / "qrels" / "train.tsv", relevant=(1,))
    collection = open_collection(str(folder))
    assert collection.folds == split(range(7), (7, 8), range(10, 14))
    assert collection.origin.judged.notes[:-1] == (
        f"{folder}: 2 validation queries are test queries too: used only as test queries",
        f"{folder}: 2 training queries are validation queries too: used only as validation queries",
    )
    assert collection.qrels["q0"]["d0-1"] == 1  # the judgments of train.tsv
    assert collection.qrels["q7"]["d7-1"] == 0  # those of dev.tsv


def test_every_training_query_in_another_part_is_refused(folder):
    write_qrels([10, 8], folder / "qrels" / "train.tsv")
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
    assert (
        collection.origin.judged.notes[0]
        == "toy: 1 training queries are validation queries too: used only as validation queries"
    )
    assert [document.text for document in collection.get(["d3"])] == [DOCUMENTS["d3"]]
    collection.origin.expect_judgments()
    assert open_collection("toy/dev").origin.judged[1:] == ((), ())


def test_the_dev_queries_of_an_id_without_judged_test_queries_test(monkeypatch, tmp_path):
    write_ids(monkeypatch, tmp_path / "ids", {id_: judged for id_, judged in TOY.items() if id_ != "toy/test"})
    collection = open_collection("toy")
    assert collection.folds == (Fold("split", *hold_out(ids(1, 2)), ids(3, 4)),)
    assert collection.origin.judged.notes[0] == "toy: no judged queries in toy/test, so those of toy/dev test"
