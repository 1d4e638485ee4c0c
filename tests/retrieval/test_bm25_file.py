"""BM25's run file, written query by query: the same bytes as a run that is written whole, also after an interrupt."""

import contextlib

import pytest

from rerank.data.trec import write_run
from rerank.data.types import Document
from rerank.retrieval import bm25
from rerank.retrieval.bm25 import Searcher, write_bm25
from rerank.retrieval.lucene_index import build_index
from rerank.utils.errors import UserError
from rerank.utils.integrity import facts_of

WORDS = ["lift", "drag", "wing", "flow", "body", "nozzle", "orbit"]
QUERIES = {f"q{number}": " ".join(WORDS[number % 7 : number % 7 + 2]) for number in range(70)} | {"none": "zebra"}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "index"
    documents = [Document(f"d{number}", "", " ".join(WORDS[number % 5 :])) for number in range(30)]
    build_index(documents, folder)
    return folder


@pytest.fixture(scope="module")
def expected(index, tmp_path_factory):
    """The bytes of the run that is retrieved and written at once."""
    file = tmp_path_factory.mktemp("whole") / "bm25.run"
    write_run(Searcher(index).search(QUERIES, 10), file, "Anserini", as_found=True)
    return file.read_bytes()


def write(file, index, queries=QUERIES, depth=10, k1=0.9):
    with write_bm25(file, Searcher(index, k1), queries, depth) as run:
        assert not file.exists()
    return run


def queries_written(monkeypatch, stop=None):
    """The ids of the queries whose lines are made from now on; an interrupt comes at query `stop`."""
    written, lines = [], bm25.lines_of_query

    def note(path, query_id, scores, tag, **options):
        if query_id == stop:
            raise KeyboardInterrupt
        written.append(query_id)
        return lines(path, query_id, scores, tag, **options)

    monkeypatch.setattr(bm25, "lines_of_query", note)
    return written


def interrupt(file, index, monkeypatch, at):
    """Writes until query `at`."""
    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        queries_written(patch, at)
        write(file, index)


def test_it_is_the_run_that_is_written_at_once(index, expected, tmp_path, capfd):
    run = write(tmp_path / "bm25.run", index)
    assert (tmp_path / "bm25.run").read_bytes() == expected
    assert run == (70, expected.count(b"\n"), facts_of(tmp_path / "bm25.run"))
    assert "1 of 71 queries find no document\n" in capfd.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["bm25.run"]


def test_an_interrupted_run_goes_on_and_is_the_same(index, expected, tmp_path, monkeypatch):
    file = tmp_path / "bm25.run"
    interrupt(file, index, monkeypatch, "q33")
    assert not file.exists()
    interrupt(file, index, monkeypatch, "q50")
    written = queries_written(monkeypatch)
    run = write(file, index)
    assert written == [f"q{number}" for number in range(50, 70)]
    assert file.read_bytes() == expected
    assert run == (70, expected.count(b"\n"), facts_of(file))
    assert [path.name for path in tmp_path.iterdir()] == ["bm25.run"]


@pytest.mark.parametrize("change", [{"k1": 1.2}, {"depth": 9}, {"queries": QUERIES | {"q0": "orbit"}}, {"index": None}])
def test_other_settings_or_queries_or_another_index_begin_again(index, tmp_path, monkeypatch, change):
    file = tmp_path / "bm25.run"
    interrupt(file, index, monkeypatch, "q33")
    if "index" in change:
        change = {"index": tmp_path / "other"}
        build_index([Document("d", "", " ".join(WORDS))], tmp_path / "other")
    written = queries_written(monkeypatch)
    write(file, **{"index": index} | change)
    assert written[0] == "q0"


def test_a_run_without_candidates_leaves_nothing(index, tmp_path):
    with contextlib.suppress(UserError), write_bm25(tmp_path / "bm25.run", Searcher(index), {"q": "zebra"}, 10) as run:
        raise UserError("no candidate")
    assert run[:2] == (0, 0)
    assert list(tmp_path.iterdir()) == []
