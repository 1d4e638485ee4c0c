"""Any bytes in any file of input give a value or one UserError, in bounded time."""

import gzip
import io
import json
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.data.collections import open_collection
from rerank.data.folds import read_folds
from rerank.data.letor.layouts import open_all, open_fold
from rerank.data.lists import read_training_lists
from rerank.data.queries import read_queries
from rerank.data.trec import read_qrels, read_run
from tests.support.any_bytes import bounded, damaged, damaged_json, value_or_error

RUN = b"q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 1.5 tag\n"
QRELS = b"q1 0 d1 1\nq1 0 d2 0\n"
BEIR_QRELS = b"query-id\tcorpus-id\tscore\nq1\td1\t1\n"
DOCUMENT = {"_id": "d1", "title": "Wings", "text": "lift and drag"}
QUERY = {"_id": "q1", "text": "lift"}
LIST = {"query_id": "q1", "doc_ids": ["d1", "d2"], "labels": [1, 0]}
FOLDS = [{"name": "1", "train": ["q1"], "valid": ["q2"], "test": ["q3"]}]
FEATURES = b"1 qid:1 1:0.5 2:1 # d1\n0 qid:1 1:0.25 # d2\n2 qid:2 2:3 # d1\n"
LIGHTGBM = b"0 1:0.5 2:1\n1 1:0.25\n2 2:3\n0 1:1\n"
COUNTS = b"2\n2\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("any-bytes")


@bounded
@given(damaged(gzip.compress(RUN, mtime=0)))
def test_a_compressed_run(folder, content):
    value_or_error(read_run, folder / "any.run.gz", content)


@bounded
@given(damaged(QRELS) | damaged(BEIR_QRELS))
def test_qrels(folder, content):
    value_or_error(read_qrels, folder / "qrels.txt", content)


def documents(folder):
    """All documents of a folder, twice: in its order and by id."""
    collection = open_collection(str(folder))
    ids = [document.doc_id for document in collection.documents()]
    for document in collection.get(ids):
        (document.doc_id + document.text).encode()
    assert all(doc_id.split() == [doc_id] and "\0" not in doc_id for doc_id in ids)
    return ids


@bounded
@given(damaged_json(DOCUMENT))
def test_a_corpus(folder, content):
    value_or_error(lambda path: documents(path.parent), folder / "corpus.jsonl", content + b"\n")


@bounded
@given(damaged_json(QUERY))
def test_the_queries_of_a_folder(folder, content):
    (folder / "towns").mkdir(exist_ok=True)
    (folder / "towns" / "corpus.jsonl").write_text(json.dumps(DOCUMENT))
    for text in (
        value_or_error(
            lambda path: open_collection(str(path.parent)).queries, folder / "towns" / "queries.jsonl", content
        )
        or {}
    ).values():
        text.encode()


@bounded
@given(damaged_json(QUERY) | damaged(b"q1\tlift\nq2\tdrag\n"))
def test_a_file_of_queries(folder, content):
    for query_id, text in (value_or_error(read_queries, folder / "topics", content) or {}).items():
        (query_id + text).encode()


@bounded
@given(damaged_json(LIST), st.sampled_from(["judgments", "scores"]))
def test_training_lists(folder, content, labels):
    value_or_error(lambda path: read_training_lists(path, {"q1": "lift"}, labels), folder / "lists.jsonl", content)


@bounded
@given(damaged_json(FOLDS))
def test_folds(folder, content):
    value_or_error(read_folds, folder / "folds.json", content)


@bounded
@given(damaged(FEATURES))
def test_features(folder, content):
    store = value_or_error(lambda path: open_all(str(path), folder / "features"), folder / "train.txt", content)
    assert store is None or store.features.qrels()


@bounded
@given(st.sampled_from(["rank.train", "rank.train.query"]), st.data())
def test_lightgbms_features(folder, name, data):
    good = {"rank.train": LIGHTGBM, "rank.train.query": COUNTS, "rank.test": LIGHTGBM, "rank.test.query": COUNTS}
    (folder / "rank").mkdir(exist_ok=True)
    for file, content in good.items():
        (folder / "rank" / file).write_bytes(content)
    value_or_error(
        lambda path: open_fold(str(path.parent), "1", 3, folder / "lightgbm"),
        folder / "rank" / name,
        data.draw(damaged(good[name])),
    )


def zipped():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("towns/corpus.jsonl", json.dumps(DOCUMENT))
        archive.writestr("towns/queries.jsonl", json.dumps(QUERY))
    return out.getvalue()


@bounded
@given(damaged(zipped()))
def test_a_zip(folder, content):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        value_or_error(lambda path: open_collection(str(path)).queries, folder / "towns.zip", content)
