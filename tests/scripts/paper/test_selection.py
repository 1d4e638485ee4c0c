import pytest

from rerank.data.folds import read_folds
from rerank.data.types import Fold
from rerank.experiments.runs.manifest import write_manifest
from rerank.experiments.runs.results import open_results
from rerank.experiments.sweep import best_cells
from scripts.paper.selection import collect_test_result, compare_with_best, select_by_validation
from tests.support.small_sweep import QUERIES, write_cell, write_collection

P1, AP = "P@1", "AP"


@pytest.fixture
def folder(tmp_path):
    """Cell a is better on the validation queries of folds 1 and 2, b on the others and on all test queries."""
    folds = write_collection(tmp_path)
    write_cell(tmp_path, "a", folds, [1, 1, 0, 0, 0.5], [0.5] * 5)
    write_cell(tmp_path, "b", folds, [0, 0.5, 0.5, 1, 1], [1] * 5)
    return tmp_path


def test_validation_chooses_fold_by_fold_and_test_queries_are_not_looked_at(folder):
    results = open_results(folder, P1)
    chosen = select_by_validation(results.experiments, P1)
    assert {place: cell.name for place, cell in chosen.items()} == {
        ("1", 0): "a", ("2", 0): "a", ("3", 0): "b", ("4", 0): "b", ("5", 0): "b",
    }  # fmt: skip
    found = collect_test_result(results, chosen, P1)
    assert found.means == [0.5, 0.5, 1, 1, 1]
    assert found.values.keys() == set(QUERIES)
    assert sum(found.values.values()) == 3 + 3 + 18


def test_another_measure_may_choose_otherwise_and_the_first_name_wins_a_tie(tmp_path):
    folds = write_collection(tmp_path)
    write_cell(tmp_path, "late", folds, [1] * 5, [1] * 5)
    write_cell(tmp_path, "early", folds, [1] * 5, [0] * 5)
    results = open_results(tmp_path, P1)
    assert {cell.name for cell in select_by_validation(results.experiments, AP).values()} == {"early"}


def test_validation_values_of_a_manifest_are_taken(folder):
    def mean():
        return open_results(folder, P1).experiments[0].folds[0].validation_mean(P1)

    assert mean() == 1
    facts = {
        "config": {}, "fold": {"name": "1", "train": [], "valid": [], "test": []}, "best_valid": 0.25,
        "outcome": {"valid": {"sha256": "", "means": {P1: 0.25}}}, "qrels": {},
        "files": {"log.jsonl": {"bytes": 0, "xxh3_128": ""}},
    }  # fmt: skip
    write_manifest(folder / "a" / "fold1" / "manifest.json", facts)
    assert mean() == 0.25


def test_where_there_is_one_fold_the_seeds_are_the_repetitions(tmp_path):
    (fold,) = write_collection(tmp_path, [Fold("1", tuple(QUERIES[:10]), tuple(QUERIES[10:20]), tuple(QUERIES[20:]))])
    for seed in range(3):
        write_cell(tmp_path, f"good-{seed}", [fold], [1], [seed / 2], seed=seed)
        write_cell(tmp_path, f"poor-{seed}", [fold], [0.5], [1], seed=seed)
    results = open_results(tmp_path, P1)
    chosen = select_by_validation(results.experiments, P1)
    assert {place: cell.name for place, cell in chosen.items()} == {("1", seed): f"good-{seed}" for seed in range(3)}
    found = collect_test_result(results, chosen, P1)
    assert found.means == [0, 0.5, 1]
    assert len(found.values) == 10
    assert sum(found.values.values()) == pytest.approx(5)


def test_worse_is_what_the_corrected_test_says(folder):
    write_cell(folder, "c", read_folds(folder / "folds.json"), [1] * 5, [5 / 6] * 4 + [1])
    results = open_results(folder, P1)
    rows = {
        cell.name: collect_test_result(results, select_by_validation([cell], P1), P1) for cell in results.experiments
    }
    assert compare_with_best(rows) == ({"b"}, {"a"})  # b - c: 4 of 30 differ, p = 0.043 > 0.05 / 2
    del rows["a"]
    assert compare_with_best(rows) == ({"b"}, {"c"})


def test_the_best_cells_have_all_folds(folder):
    folds = read_folds(folder / "folds.json")
    write_cell(folder, "unfinished", folds[:4], [1] * 4, [1] * 4)
    lines = best_cells(folder, ["a", "b", "unfinished"], [fold.name for fold in folds], "P@1").splitlines()
    assert lines[0] == f"{folder}: the best of 2 finished cells, mean ± standard error over 5 folds"
    assert [line.split()[:4] for line in lines[3:]] == [["b", "0.6000", "±", "0.1871"], ["a", "0.5000", "±", "0.2236"]]
