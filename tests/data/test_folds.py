import json
import random
from pathlib import Path

import pytest

from rerank.data.folds import draw_queries, make_folds, official_folds, read_folds, select_folds, write_folds
from rerank.data.types import Fold
from rerank.utils.errors import UserError

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
    with pytest.raises(ValueError, match="fold a: queries 3 are in more than one part"):
        official_folds([("a", ["1"]), ("b", ["3"]), ("c", ["3"])])
    with pytest.raises(UserError, match="at least 3"):
        official_folds([("a", ["1"]), ("b", ["3"])])


def test_pick() -> None:
    folds = make_folds(QUERIES)
    assert select_folds(folds, "all") == folds
    assert select_folds(folds, "2") == [folds[1]]
    with pytest.raises(UserError, match="fold 6: no such fold; expected 1, 2, 3, 4, 5 or all"):
        select_folds(folds, "6")


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
