import json
import math
import os
import random
import subprocess
import sys

import pytest

from rerank.data.collections import open_collection
from rerank.data.trec import write_run
from rerank.data.types import Document
from rerank.retrieval.bm25 import Searcher, retrieve
from rerank.retrieval.lucene_index import build_index
from rerank.utils.errors import UserError
from tests.support.paths import SHARED_DATA

SHARED = SHARED_DATA / "data"

PYSERINI = """
import os, runpy, sys
from rerank.retrieval.java import start
start()
os.environ["OPENAI_API_KEY"] = "x"
def main(module, *arguments):
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")
for folder, k1, b in [job.split() for job in sys.argv[1:]]:
    if not os.path.exists(f"{folder}/index"):
        documents = ["-collection", "JsonCollection", "-input", f"{folder}/documents"]
        main("pyserini.index.lucene", *documents, "-index", f"{folder}/index", "-threads", "2")
    settings = ["--hits", "150", "--bm25", "--k1", k1, "--b", b, "--threads", "2", "--batch-size", "64"]
    files = ["--index", f"{folder}/index", "--topics", f"{folder}/queries.tsv", "--output", f"{folder}/{k1}.run"]
    main("pyserini.search.lucene", *files, *settings)
"""
"""Pyserini's own command lines, which index JSON documents and search with TSV queries; loading them takes seconds."""

JOBS = [("generated", 0.9, 0.4), ("generated", 1.5, 0.8), ("cranfield", 0.9, 0.4)]

DOCUMENTS = [
    Document("wing", "", "the lift of a wing and the drag of a wing"),
    Document("body", "", "the drag of a blunt body in hypersonic flow"),
    Document("café", "", 'un café 😀 \u0000 with "quotes" and \\ and a\ttab\nand lines'),
    Document("same1", "", "supersonic nozzle"),
    Document("same2", "", "supersonic nozzle"),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "index"
    build_index(DOCUMENTS, folder)
    return folder


def generated():
    """300 documents of common and rare words, some the same, and queries of one to four words."""
    rng = random.Random(5)
    words = [
        f"{syllable}{ending}"
        for syllable in ("ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu")
        for ending in ("ns", "rt", "lly")
    ]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    documents = [
        Document(f"doc-{i}", "", " ".join(rng.choices(words, weights, k=rng.randint(3, 60)))) for i in range(295)
    ]
    documents += [Document(f"twin-{i}", "", documents[0].body) for i in range(5)]
    return documents, {f"q{i}": " ".join(rng.choices(words, k=rng.randint(1, 4))) for i in range(40)}


def documents_and_queries(name):
    if name == "generated":
        return generated()
    collection = open_collection(str(SHARED / name))
    return list(collection.documents()), collection.queries


@pytest.fixture(scope="module")
def pyserini_runs(tmp_path_factory):
    """The folder where Pyserini's own command line has written <name>/<k1>.run for every job that it can do here."""
    root = tmp_path_factory.mktemp("pyserini")
    jobs = [job for job in JOBS if job[0] == "generated" or (SHARED / job[0]).is_dir()]
    for name in {name for name, _, _ in jobs}:
        documents, queries = documents_and_queries(name)
        (root / name / "documents").mkdir(parents=True)
        lines = [json.dumps({"id": document.doc_id, "contents": document.text}) for document in documents]
        (root / name / "documents" / "all.jsonl").write_text("\n".join(lines))
        (root / name / "queries.tsv").write_text("".join(f"{query_id}\t{text}\n" for query_id, text in queries.items()))
    arguments = [f"{root / name} {k1} {b}" for name, k1, b in jobs]
    environment = os.environ | {"PYSERINI_CACHE": str(root)}
    subprocess.run([sys.executable, "-c", PYSERINI, *arguments], check=True, capture_output=True, env=environment)
    return root


@pytest.mark.parametrize(("name", "k1", "b"), JOBS)
def test_the_run_is_the_one_that_pyserini_writes(pyserini_runs, tmp_path, name, k1, b):
    if not (pyserini_runs / name).is_dir():
        pytest.skip("the shared collection is not here")
    documents, queries = documents_and_queries(name)
    build_index(documents, tmp_path / "own")
    run = Searcher(tmp_path / "own", k1, b).search(queries, 150)
    assert list(run) == [query_id for query_id in queries if query_id in run]
    write_run(run, tmp_path / "own.run", "Anserini", as_found=True)
    theirs = (pyserini_runs / name / f"{k1}.run").read_text()
    assert sorted((tmp_path / "own.run").read_text().splitlines()) == sorted(theirs.splitlines())


def test_queries_that_find_nothing_are_counted_and_kept_out(index, capfd):
    run = Searcher(index).search({"1": "drag", "2": "the of", "3": "", "4": "zebra", "😀": "café 😀"}, depth=10)
    assert {query_id: list(hits) for query_id, hits in run.items()} == {"1": ["wing", "body"], "😀": ["café"]}
    assert "3 of 5 queries find no document\n" in capfd.readouterr().err


def test_equal_scores_are_in_the_order_of_document_ids_and_depth_cuts(index):
    hits = Searcher(index).search({"1": "supersonic"}, depth=10)["1"]
    assert list(hits) == ["same1", "same2"]
    assert 0 <= hits["same1"] - hits["same2"] < 2e-6  # Anserini sets equal scores a millionth apart
    assert list(Searcher(index).search({"1": "supersonic"}, depth=1)["1"]) == ["same1"]


@pytest.mark.parametrize("depth", [7, 300])
def test_a_query_alone_has_the_hits_that_it_has_among_others(tmp_path, depth):
    documents, queries = generated()
    build_index(documents, tmp_path / "index")
    searcher = Searcher(tmp_path / "index")
    together = searcher.search(queries, depth)
    for query_id, query in queries.items():
        assert list(searcher.search_one(query, depth).items()) == list(together.get(query_id, {}).items())


def test_a_query_of_any_number_of_terms_has_the_results_of_all_of_them(tmp_path):
    terms = [f"term{number}" for number in range(3000)]
    build_index([Document(f"d{number}", "", term) for number, term in enumerate(terms)], tmp_path / "index")
    run = Searcher(tmp_path / "index").search({"all": " ".join(terms), "last": terms[-1]}, depth=3000)
    assert len(run["all"]) == 3000
    (score,) = run["last"].values()
    assert max(run["all"].values()) == pytest.approx(score)
    assert min(run["all"].values()) == pytest.approx(score, abs=3000 * 2e-6)  # ties are a millionth apart


def test_retrieval_from_python_needs_no_experiment(tmp_path):
    folder = tmp_path / "small"
    (folder / "qrels").mkdir(parents=True)
    lines = [json.dumps({"_id": document.doc_id, "text": document.text}) for document in DOCUMENTS]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    (folder / "queries.jsonl").write_text('{"_id": "q1", "text": "drag"}')
    (folder / "qrels" / "test.tsv").write_text("q1\twing\t1\n")
    run = retrieve(str(folder), depth=2)
    assert {query_id: list(hits) for query_id, hits in run.items()} == {"q1": ["wing", "body"]}
    assert not list(folder.glob("small*"))
    collection = open_collection(str(folder))
    assert retrieve(collection, depth=2, cache=tmp_path / "cache") == run
    (index,) = (path for path in (tmp_path / "cache").iterdir() if path.is_dir())
    assert retrieve(collection, depth=1, k1=1.2, b=0.75, index=str(index))["q1"].keys() == {"wing"}
    with pytest.raises(UserError, match="index robust4: neither auto"):
        retrieve(collection, index="robust4")
    for wrong in ({"k1": -1}, {"k1": math.nan}, {"b": 1.5}, {"depth": 2**31}, {"threads": 2000}):
        with pytest.raises(UserError, match=rf"^{next(iter(wrong))}: got .*, expected "):
            retrieve(collection, **wrong)
    with pytest.raises(TypeError, match=r"^k1: expected a number, got None"):
        retrieve(collection, k1=None)
