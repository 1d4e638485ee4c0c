"""Any bytes in any file of input give a value or one UserError, in bounded time."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.data.collections import open_collection
from rerank.data.folds import read_folds
from rerank.data.letor.store import open_feature_store
from rerank.data.lists import read_training_lists
from rerank.data.queries import read_queries
from rerank.data.runs import read_qrels, read_run
from tests.support.any_bytes import bounded, damaged, damaged_json, value_or_error

RUN = b"q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 1.5 tag\n"
QRELS = b"q1 0 d1 1\nq1 0 d2 0\n"
BEIR_QRELS = b"query-id\tcorpus-id\tscore\nq1\td1\t1\n"
DOCUMENT = {"_id": "d1", "title": "Wings", "text": "lift and drag"}
QUERY = {"_id": "q1", "text": "lift"}
LIST = {"query_id": "q1", "doc_ids": ["d1", "d2"], "labels": [1, 0]}
FOLDS = [{"name": "1", "train": ["q1"], "valid": ["q2"], "test": ["q3"]}]
FEATURES = b"1 qid:1 1:0.5 2:1 # d1\n0 qid:1 1:0.25 # d2\n2 qid:2 2:3 # d1\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("any-bytes")


def documents(path):
    """All documents of the folder of a corpus, twice: in its order and by id."""
    collection = open_collection(str(path.parent))
    ids = [document.doc_id for document in collection.documents()]
    for document in collection.get(ids):
        (document.doc_id + document.text).encode()
    assert all(doc_id.split() == [doc_id] and "\0" not in doc_id for doc_id in ids)
    return ids


def queries(path):
    """The queries of a folder, and the texts of a file's, which UTF-8 can write."""
    read = open_collection(str(path.parent)).queries if path.name == "queries.jsonl" else read_queries(path)
    "".join([*read, *read.values()]).encode()


def features(path):
    """The judgments of a file of feature vectors, which has some."""
    judged = open_feature_store({"all": path}, path.parent / "features").features.qrels()
    assert judged


READERS = {
    "any.run.gz": (damaged(gzip.compress(RUN, mtime=0)), read_run),
    "qrels.txt": (damaged(QRELS) | damaged(BEIR_QRELS), read_qrels),
    "documents/corpus.jsonl": (damaged_json(DOCUMENT).map(lambda content: content + b"\n"), documents),
    "towns/queries.jsonl": (damaged_json(QUERY), queries),
    "topics": (damaged_json(QUERY) | damaged(b"q1\tlift\nq2\tdrag\n"), queries),
    "scores.jsonl": (damaged_json(LIST), lambda path: read_training_lists(path, {"q1": "lift"}, "scores")),
    "judgments.jsonl": (damaged_json(LIST), lambda path: read_training_lists(path, {"q1": "lift"}, "judgments")),
    "folds.json": (damaged_json(FOLDS), read_folds),
    "train.txt": (damaged(FEATURES), features),
}


@pytest.mark.parametrize("name", READERS)
@bounded
@given(data=st.data())
def test_a_file(folder, name, data):
    contents, read = READERS[name]
    for place in ("documents", "towns"):
        (folder / place).mkdir(exist_ok=True)
    (folder / "towns" / "corpus.jsonl").write_text(json.dumps(DOCUMENT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        value_or_error(read, folder / name, data.draw(contents))
