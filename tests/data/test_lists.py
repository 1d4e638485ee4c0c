"""A file of training lists: what a line may have, and every mistake with file and line."""

import json

import pytest

from rerank.data.lists import OF_TEXT, id_of_text, read_training_lists
from rerank.utils.errors import UserError

QUERIES = {"q1": "drag", "q2": "lift"}


def written(tmp_path, *lines):
    path = tmp_path / "lists.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_queries_and_documents_are_ids_or_texts(tmp_path):
    path = written(
        tmp_path,
        {"query_id": "q1", "doc_ids": ["d2", "d1"], "labels": [1, 0], "source": "mined"},
        "",
        {"query": "Wing  flutter", "documents": ["Flutter is…", "A wing"], "labels": [-3.25, 7]},
        {"query_id": "q1", "documents": ["A wing", ""], "labels": [0.5, 0.5]},
        {"query": "Wing  flutter", "doc_ids": ["d1", "d3", "d2"], "labels": [1e-3, 2, -1]},
    )
    lists = read_training_lists(path, QUERIES, "scores")
    flutter, wing = id_of_text("Flutter is…"), id_of_text("A wing")
    query = id_of_text("Wing  flutter")
    assert [(found.query_id, found.doc_ids, found.labels) for found in lists.lists] == [
        ("q1", ("d2", "d1"), (1, 0)),
        (query, (flutter, wing), (-3.25, 7)),
        ("q1", (wing, id_of_text("")), (0.5, 0.5)),
        (query, ("d1", "d3", "d2"), (1e-3, 2, -1)),
    ]
    assert lists.queries == {query: "Wing  flutter"}
    assert lists.query_texts(QUERIES) == {"q1": "drag", query: "Wing  flutter"}
    assert lists.doc_ids() == (["d2", "d1", "d3"], [flutter, wing, id_of_text("")])
    assert list(lists.texts()) == ["Flutter is…", "A wing", ""]


def test_ids_of_texts_are_no_ids_of_a_collection():
    ids = {id_of_text(text) for text in ("d1", "d1 ", "D1", "")}
    assert len(ids) == 4
    assert all(doc_id.startswith(OF_TEXT) and doc_id.split() != [doc_id] for doc_id in ids)


GOOD = {"query_id": "q1", "doc_ids": ["d1", "d2"], "labels": [1, 0]}


def but(**changes):
    """A good line with other values; None removes a key."""
    return {key: value for key, value in {**GOOD, **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[1, 2]", 'expected {"query_id" or "query": …'),
        (but(query_id=None), "\"negative\": …}, got the keys ['doc_ids', 'labels']"),
        (but(query="drag"), "got the keys ['query_id', 'doc_ids', 'labels', 'query']"),
        (but(documents=["a", "b"]), "got the keys ['query_id', 'doc_ids', 'labels', 'documents']"),
        (but(query_id="q3"), "the collection has no query q3; give its text under 'query', or drop the line"),
        (but(query_id=1), "expected `str`, got `int` - at `$.query_id`"),
        (but(query_id=None, query=" "), "expected the text of a query under 'query', got ' '"),
        (but(doc_ids="d1"), "expected `array`, got `str` - at `$.doc_ids`"),
        (but(doc_ids=["d1", 2]), "expected `str`, got `int` - at `$.doc_ids[1]`"),
        (but(doc_ids=["d1"], labels=[1]), "expected two documents or more, and a label for each, got 1 and 1"),
        (but(labels=None), "expected two documents or more, and a label for each, got 2 and 0"),
        (but(doc_ids=["d1", "d1"]), "expected each document once, got 'd1' again"),
        (but(doc_ids=None, documents=["a", "a"]), "expected each document once, got 'a' again"),
        (but(labels=[1, "0"]), "expected `float`, got `str` - at `$.labels[1]`"),
        (but(labels=[1, True]), "expected `float`, got `bool` - at `$.labels[1]`"),
        (but(labels=[1, float("nan")]), "not JSON ("),
        (but(labels=[1, 10**40]), "as the loss takes scores, got 1e+40"),
        (but(labels=[1, 1e39]), "as the loss takes scores, got 1e+39"),
    ],
)
def test_a_malformed_line_is_named_with_its_number(tmp_path, line, expected):
    path = written(tmp_path, GOOD, "", line)
    with pytest.raises(UserError) as raised:
        read_training_lists(path, QUERIES, "scores")
    assert str(raised.value).startswith(f"{path}:3: ")
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500 + len(str(path))


@pytest.mark.parametrize("label", [-0.5, 2**24 + 1, 1e30])
def test_judgments_have_a_range_and_scores_have_none(tmp_path, label):
    path = written(tmp_path, but(labels=[1.5, label]))
    assert read_training_lists(path, QUERIES, "scores").lists[0].labels == (1.5, label)
    expected = "expected judgments from 0 on under 'labels'" if label < 0 else "grade .*: take lower grades"
    with pytest.raises(UserError, match=f"lists.jsonl:1: {expected}"):
        read_training_lists(path, QUERIES, "judgments")


def test_files_without_lists_and_files_that_changed(tmp_path):
    with pytest.raises(UserError, match=r"lists.jsonl: empty file; expected lines of"):
        read_training_lists(written(tmp_path, "", ""), QUERIES, "scores")
    path = written(tmp_path, but(doc_ids=None, documents=["a", "b"]))
    lists = read_training_lists(path, QUERIES, "scores")
    written(tmp_path, but(doc_ids=None, documents=["a", "c"]))
    with pytest.raises(UserError, match="has changed since it was read"):
        list(lists.texts())
