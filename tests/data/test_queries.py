"""Files of queries, and other fields of a collection's queries."""

import gzip

import pytest

from rerank.data.collections import open_collection, queries_to_search, queries_to_train
from rerank.data.queries import read_queries
from rerank.utils.errors import UserError
from tests.support.small_collection import write_collection


@pytest.fixture
def folder(tmp_path):
    return write_collection(tmp_path / "towns", queries=3, documents=3)


@pytest.mark.parametrize(
    "text",
    [
        "q2\tHäuser am See\nq1\tlift\tand drag\n",
        "\ufeffq2\tHäuser am See\r\n\r\nq1\tlift\tand drag",
        '{"_id": "q2", "text": "Häuser am See"}\n\n{"_id": "q1", "text": "lift\\tand drag"}\n',
    ],
)
@pytest.mark.parametrize("name", ["topics.tsv", "topics.tsv.gz"])
def test_tsv_and_json_lines_are_read_in_the_order_of_the_file(tmp_path, text, name):
    path, data = tmp_path / name, text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert list(read_queries(path).items()) == [("q2", "Häuser am See"), ("q1", "lift\tand drag")]


TOPICS = """
<top>
<num> Number: 301
<title> International Organized Crime

<desc> Description:
Which groups are < 9 years old,
and <where>? Topic: any

</top>

<top><head>x</head><num>302</num><title>Topic: Polio</title><desc></desc><narr> Narrative: All. </top>
"""


@pytest.mark.parametrize(
    ("fields", "texts"),
    [
        ([], ["International Organized Crime", "Polio"]),
        (["description"], ["Which groups are < 9 years old, and <where>? Topic: any", ""]),
        (
            ["title", "description"],
            ["International Organized Crime Which groups are < 9 years old, and <where>? Topic: any", "Polio"],
        ),
    ],
)
def test_topics_of_trec_have_fields(tmp_path, fields, texts):
    (tmp_path / "topics").write_text(TOPICS)
    assert read_queries(tmp_path / "topics", fields=fields) == dict(zip(["301", "302"], texts, strict=True))


def test_a_text_may_be_empty(tmp_path):
    (tmp_path / "topics.tsv").write_text("q1\tlift\nq2\t")
    assert read_queries(tmp_path / "topics.tsv") == {"q1": "lift", "q2": ""}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1\tlift\nq2 drag\n", r"topics:2: expected a query's id, a tab and its text, got 'q2 drag'"),
        ("q1\tlift\nq1\tdrag\n", r"topics:2: the query q1 occurs a second time; expected each id once"),
        ("q1\tdrag\n\ufeffq2\tlift\n", r"topics:2: the query id '\\ufeffq2' begins with a byte order mark; remove"),
        ("q 1\tlift\n", r"topics:1: the query id 'q 1' is empty or has white space or a NUL, so no run can hold it"),
        ("\tlift\n", r"topics:1: the query id '' is empty or has white space"),
        ("\n \n", r"topics: has no query; expected lines of a query's id, a tab and its text, or of"),
        (b"q1\t\xff\n", r"topics:1: expected UTF-8"),
        ('{"_id": "q1", "text": "x"}\nq2\tdrag', r"topics:2: not JSON"),
        ('{"_id": "q1", "text": "x"}\n[1]', r"topics:2: expected a JSON object on one line, got \[1\]"),
        (
            '{"_id": "q1", "title": "x"}',
            r"expected a text under 'text', got none \(the keys are \['_id', 'title'\]\)",
        ),
        ("<top>\n<num> 1\n<desc> x\n</top>", r"topics:1: the topic has no title; its fields are id, description"),
        ("<top>\n<title> x\n</top>", r"topics:1: the topic has no id; its fields are title"),
        ("<top>\n<num> 1\n<title> x\n", r"topics:1: the topic has no end; expected </top> after it"),
        ("<top>\n<num> 1\n<top>", r"topics:3: expected the topic of .*topics:1 to end first, got <top>"),
        ("<top>\n<num> 1\n<title> x </top>\n</top>", r"topics:4: expected <top> first, got </top>"),
        (b"\x1f\x8bnot gzip", r"topics: damaged gzip file"),
        (None, r"topics: cannot be read: No such file or directory; expected lines of a query's id"),
    ],
)
def test_a_bad_file_of_queries_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "topics"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message) as caught:
        read_queries(path)
    assert "\n" not in str(caught.value)


def test_a_file_replaces_the_queries_and_nothing_else(folder, tmp_path):
    (tmp_path / "new.tsv").write_text("n1\tgood\nq1\tbad\n")
    before, after = open_collection(str(folder)), open_collection(str(folder), queries=tmp_path / "new.tsv")
    assert after.queries == queries_to_search(after) == {"n1": "good", "q1": "bad"}
    for part in ("source", "name", "qrels", "folds", "fingerprint", "has_documents"):
        assert getattr(after, part) == getattr(before, part)
    assert after.count() == before.count()
    assert list(after.documents()) == list(before.documents())
    assert list(after.get(["d1-0"])) == list(before.get(["d1-0"]))


def test_training_takes_the_judged_queries_of_a_file_and_needs_all_of_them(folder, tmp_path):
    path = tmp_path / "new.tsv"
    path.write_text("n1\tgood\nq2\tc\nq1\tb\nq0\ta\n")
    assert list(queries_to_train(open_collection(str(folder), queries=path))) == ["q2", "q1", "q0"]
    path.write_text("n1\tgood\nq1\tb\n")
    expected = r"new\.tsv: has no text of 2 of the 3 judged queries, such as q0; .* add them to the file"
    with pytest.raises(UserError, match=expected):
        queries_to_train(open_collection(str(folder), queries=path))
