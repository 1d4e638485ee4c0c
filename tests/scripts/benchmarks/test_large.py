"""`python -m scripts.benchmarks large`: what it generates, and how it extrapolates. No time is asserted."""

import gzip

import pytest

from rerank.data.collections import open_collection
from rerank.data.trec import read_run
from scripts.benchmarks.commands import main
from scripts.benchmarks.documents import measured
from scripts.benchmarks.large import STEPS, with_full_size
from scripts.benchmarks.large_collection import DEPTH, PASSAGES, shape, write_large_collection, write_large_run
from tests.support.small_collection import failed

SHARE = 1e-4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    write_large_collection(folder / "collection", shape(SHARE))
    write_large_run(folder / "first-stage.run", shape(SHARE))
    return folder


def test_the_collection_and_its_run_are_ones_that_we_read(folder):
    of = shape(SHARE)
    collection, run = open_collection(str(folder / "collection")), read_run(folder / "first-stage.run")
    texts = {document.doc_id: document.text for document in collection.documents()}
    assert len(texts) == of.passages == round(SHARE * PASSAGES)
    assert {len(text.split()) for text in texts.values()} == {55}
    (fold,) = collection.folds
    assert [len(part) for part in (fold.train, fold.valid, fold.test)] == list(of.queries.values())
    assert run.keys() == collection.qrels.keys() == collection.queries.keys()
    assert sum(map(len, run.values())) == of.lines == DEPTH * len(run)
    assert all(doc_id in texts for scores in run.values() for doc_id in scores)
    assert all(run[query_id].keys() >= judged.keys() for query_id, judged in collection.qrels.items())


def test_runs_of_other_forms_are_the_same_run(folder):
    expected = read_run(folder / "first-stage.run")
    write_large_run(folder / "by-rank.run", shape(SHARE), by_rank=True)
    write_large_run(folder / "first-stage.run.gz", shape(SHARE))
    assert read_run(folder / "by-rank.run") == expected
    assert gzip.decompress((folder / "first-stage.run.gz").read_bytes()) == (folder / "first-stage.run").read_bytes()


@pytest.mark.parametrize("step", ["hash", "read"])
def test_steps_are_measured_in_a_process_of_their_own(folder, step):
    found = measured(STEPS[step].code, STEPS[step].arguments, folder)
    assert found["peak MB"] > 1


def test_the_full_size_is_on_the_line_through_two_sizes():
    rows = [
        {"what": "a", "passages": PASSAGES // 10, "s": 2.0, "peak MB": 200.0},
        {"what": "a", "passages": PASSAGES // 100, "s": 0.2, "peak MB": 110.0},
    ]
    smaller, larger = with_full_size(rows)
    assert smaller == rows[1]
    assert larger["full size, s"] == pytest.approx(20, rel=1e-4)
    assert larger["full size, peak MB"] == pytest.approx(1100, rel=1e-4)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--share", "0"], "--share: got 0, expected a number above 0, at most 1"),
        (["walk"], "walk"),
        (["--out", "."], "--out .: is a folder"),
    ],
)
def test_what_cannot_be_measured(capsys, words, expected):
    assert expected in failed(capsys, "large", *words, main=main)
