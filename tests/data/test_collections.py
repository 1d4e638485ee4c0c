import itertools
import json
import os
import re
import shutil

import pytest

from rerank.data import collections
from rerank.data.collections import beir, open_collection, queries_to_search, with_copied_documents
from rerank.data.collections.beir import BeirFolder
from rerank.data.collections.irds import library
from rerank.utils.errors import UserError
from rerank.utils.registry import Registry
from tests.support import robust04_standin as standin
from tests.support.small_ids import write_ids


@pytest.fixture
def folder(tmp_path):
    """A small collection in BEIR's layout: three documents, two judged queries and one that is not."""
    folder = tmp_path / "small"
    (folder / "qrels").mkdir(parents=True)
    documents = [
        {"_id": "d1", "title": "Wings", "text": "lift and drag"},
        {"_id": "d2", "title": "", "text": "café 😀 in orbit"},
        {"_id": "d3", "text": "no title"},
    ]
    queries = [{"_id": "q2", "text": "drag"}, {"_id": "q9", "text": "not judged"}, {"_id": "q1", "text": "orbit"}]
    write_lines(folder / "corpus.jsonl", documents)
    write_lines(folder / "queries.jsonl", queries)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td2\t2\nq1\td1\t0\nq2\td1\t1\n")
    return folder


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_folder_gives_queries_qrels_and_texts(folder):
    collection = open_collection(str(folder))
    assert collection.name == "small"
    assert collection.queries == {"q2": "drag", "q9": "not judged", "q1": "orbit"}
    assert queries_to_search(collection) == {"q2": "drag", "q1": "orbit"}
    assert collection.qrels == {"q1": {"d2": 2, "d1": 0}, "q2": {"d1": 1}}
    assert (collection.folds, collection.origin.judged.notes) == ((), ())
    assert (collection.has_documents, collection.found_at_once) == (True, True)
    assert collection.known(["d9", "d1", "d1"]) == {"d1"}
    assert [document.text for document in collection.get(["d3", "d1", "d2", "d1"])] == [
        "no title",
        "Wings lift and drag",
        "café 😀 in orbit",
        "Wings lift and drag",
    ]
    assert list(collection.documents()) == [
        ("d1", "Wings", "lift and drag"),
        ("d2", "", "café 😀 in orbit"),
        ("d3", "", "no title"),
    ]


def test_the_fingerprint_follows_the_documents_and_neither_the_place_nor_the_time(folder, tmp_path):
    before = open_collection(str(folder)).fingerprint
    shutil.copytree(folder, tmp_path / "copy")
    os.utime(tmp_path / "copy" / "corpus.jsonl", (0, 0))
    assert open_collection(str(tmp_path / "copy")).fingerprint == before
    write_lines(folder / "corpus.jsonl", [{"_id": "d1", "text": "other"}])
    collection = open_collection(str(folder))
    assert collection.fingerprint != before
    assert list(collection.get(["d1"])) == [("d1", "", "other")]


def test_one_text_is_no_sequence_of_texts(folder):
    collection = open_collection(str(folder))
    for ask in (collection.get, collection.known, lambda text: open_collection(str(folder), query_fields=text)):
        with pytest.raises(TypeError, match=r"expected a sequence of .*, got one text"):
            ask("text")


def test_a_missing_document_is_named_and_opening_reads_none(folder):
    with pytest.raises(UserError, match=r"corpus\.jsonl: has no document d7"):
        list(open_collection(str(folder)).get(["d1", "d7"]))
    (folder / "corpus.jsonl").write_text("not JSON")
    assert len(open_collection(str(folder)).queries) == 3


@pytest.fixture
def large(folder, monkeypatch, tmp_path):
    """The same collection, as one that is so large that the places of its documents are kept on disk."""
    monkeypatch.setattr(beir, "LARGE_CORPUS", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_the_places_of_the_documents_of_a_large_collection_are_kept(large, tmp_path, monkeypatch):
    def texts():
        return [document.text for document in open_collection(str(large)).get(["d3", "d1"])]

    expected, kept = ["no title", "Wings lift and drag"], tmp_path / "cache" / "rerank" / "offsets"
    assert texts() == expected
    with monkeypatch.context() as patch:
        patch.setattr(BeirFolder, "_records", None)  # no line is read again
        assert texts() == expected
    (before,) = kept.glob("*/")
    corpus = large / "corpus.jsonl"
    corpus.write_text('{"_id": "d0", "text": "new"}\n' + corpus.read_text())
    assert texts() == expected
    (after,) = kept.glob("*/")
    assert before != after


def test_a_copy_shares_the_hash_and_the_places_of_a_large_collection(large, tmp_path):
    """A server copies the documents into a new folder at each start, and the cache does not grow."""
    original = open_collection(str(large))
    fingerprint, kept = original.fingerprint, tmp_path / "cache" / "rerank" / "offsets"
    for number in range(2):
        (tmp_path / f"copy{number}").mkdir()
        copied = with_copied_documents(open_collection(str(large)), tmp_path / f"copy{number}")
        assert len(list(kept.glob("*/"))) == 1
    corpus = large / "corpus.jsonl"
    corpus.write_text('{"_id": "d0", "text": "new"}\n' + corpus.read_text())
    assert copied.fingerprint == fingerprint != open_collection(str(large)).fingerprint
    assert [document.text for document in copied.get(["d3", "d1"])] == ["no title", "Wings lift and drag"]
    assert len(list(kept.glob("*/"))) == 1


def test_places_that_were_interrupted_are_found_again(large, tmp_path, monkeypatch):
    collection, record = open_collection(str(large)), BeirFolder._document

    def interrupt(self, line, where):
        if where.endswith(":3"):
            monkeypatch.setattr(BeirFolder, "_document", record)
            raise KeyboardInterrupt
        return record(self, line, where)

    monkeypatch.setattr(BeirFolder, "_document", interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(collection.get(["d3"]))
    assert [document.text for document in collection.get(["d3", "d1"])] == ["no title", "Wings lift and drag"]


def test_a_document_that_occurs_twice_in_a_large_collection_is_named_before_any_is_read(large):
    with (large / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "d3", "text": "x"}\n{"_id": "d1", "text": "x"}\n')
    collection = open_collection(str(large))
    with pytest.raises(UserError, match=r"corpus\.jsonl:4: the document d3 occurs a second time"):
        next(collection.documents())
    with pytest.raises(UserError, match=r"corpus\.jsonl:4: the document d3 occurs a second time"):
        next(collection.get(["d1"]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2]", r"corpus\.jsonl:4: expected an object with _id and text on one line, got \[1, 2\]"),
        ('{"text": "x", "title": ""}', r"corpus\.jsonl:4: expected a text under '_id', got none"),
        ('{"_id": 4, "text": "x"}', r"corpus\.jsonl:4: expected a text under '_id', got 4"),
        ('{"_id": "d4", "text": null}', r"corpus\.jsonl:4: expected a text under 'text', got None"),
        ('{"_id": "d4", "text": "x", "title": 7}', r"corpus\.jsonl:4: expected a text under 'title', got 7"),
        ('{"_id": "d4", "text": "x", "title": false}', r"corpus\.jsonl:4: expected a text under 'title', got False"),
        ('{"_id": "d4", "text": "x", "title": []}', r"corpus\.jsonl:4: expected a text under 'title', got \[\]"),
        ('{"_id": "d 4", "text": "x"}', r"corpus\.jsonl:4: the _id 'd 4' is empty or has white space"),
        ('{"_id": "d\\n4", "text": "x"}', r"corpus\.jsonl:4: the _id 'd\\n4' is empty or has white space"),
        (
            '{"_id": "d\\u00004", "text": "x"}',
            r"corpus\.jsonl:4: the _id 'd\\x004' is empty or has white space or a NUL",
        ),
        ('{"_id": "\\ufeffd4", "text": "x"}', r"corpus\.jsonl:4: the _id '\\ufeffd4' begins with a byte order mark"),
        (f'{{"_id": "{"d" * 40_000}", "text": "x"}}', r"corpus\.jsonl:4: .*has 40000 bytes; expected 32766 at most"),
        ('{"_id": "d1", "text": "x"}', r"corpus\.jsonl:4: the document d1 occurs a second time"),
        ('{"_id": "d4", "text": "caf\udce9"}', r"corpus\.jsonl:4: not JSON \('utf-8' codec"),
        ('{"_id": "d4", "text": "wing \\ud800 flutter"}', r"corpus\.jsonl:4: .*utf-16 surrogate pair"),
        ('{"_id": "d4", "text": ' + "[" * 100_000, r"corpus\.jsonl:4: .*too many brackets in each other"),
    ],
    ids=itertools.count(),  # some lines are long
)
def test_a_bad_line_of_the_corpus_is_named(folder, line, message):
    with (folder / "corpus.jsonl").open("a", errors="surrogateescape") as corpus:
        corpus.write(line + "\n")
    collection = open_collection(str(folder))
    for read in (lambda: list(collection.documents()), lambda: list(collection.get(["d1"]))):
        with pytest.raises(UserError, match=message) as caught:
            read()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500


def test_a_folder_without_judgments_is_a_collection_whose_queries_are_all_searched(folder):
    judged = folder / "qrels" / "test.tsv"
    judged.rename(judged.with_name("judged.tsv"))  # which are not taken for none
    with pytest.raises(UserError, match=r"no qrels/test\.tsv; a collection folder holds"):
        open_collection(str(folder)).qrels  # noqa: B018
    shutil.rmtree(folder / "qrels")
    collection = open_collection(str(folder))
    assert collection.qrels == {}
    assert queries_to_search(collection) == collection.queries == {"q2": "drag", "q9": "not judged", "q1": "orbit"}
    with pytest.raises(UserError, match=r"no qrels/test\.tsv; a collection folder holds"):
        collection.origin.expect_judgments()


def test_documents_alone_need_no_queries_and_no_judgments(folder):
    (folder / "queries.jsonl").unlink()
    (folder / "qrels" / "test.tsv").unlink()
    alone = open_collection(str(folder))
    documents = list(alone.documents())
    assert list(alone.get([document.doc_id for document in documents])) == documents
    with pytest.raises(UserError, match=r"no queries\.jsonl; a collection folder holds corpus\.jsonl .*test\.tsv"):
        alone.queries  # noqa: B018
    with pytest.raises(UserError, match=r"no queries\.jsonl and no qrels/test\.tsv; a collection folder holds"):
        alone.origin.expect_judgments()
    (folder / "corpus.jsonl").unlink()
    with pytest.raises(UserError, match=r"no corpus\.jsonl; a collection folder holds"):
        open_collection(str(folder))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("queries.jsonl", '{"_id": "q1"}', r"queries\.jsonl:1: expected a text under 'text', got none"),
        ("queries.jsonl", '{"_id": "q1", "text": "x"}\n' * 2, r"queries\.jsonl:2: the query q1 occurs a second"),
        (
            "qrels/test.tsv",
            "q1 d1\n",
            r"test\.tsv:1: expected `query_id 0 doc_id relevance` with an integer relevance, got 'q1 d1'",
        ),
    ],
)
def test_bad_queries_and_qrels_are_named(folder, name, content, message):
    (folder / name).write_text(content)
    with pytest.raises(UserError, match=message):
        open_collection(str(folder)).queries  # noqa: B018


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("disks45/nocr/trec-robust-2005", "no such file or folder.* did you mean disks45/nocr/trec-robust-2004?"),
        ("disks45/nocr", "ir_datasets has no queries for it; .*disks45/nocr/trec-robust-2004,"),
    ],
)
def test_an_id_that_cannot_be_used_names_those_that_can(monkeypatch, tmp_path, source, message):
    standin.use_home(monkeypatch, tmp_path)
    with pytest.raises(UserError, match=message):
        open_collection(source).queries  # noqa: B018


def test_an_id_without_judgments_names_those_that_have_them(monkeypatch, tmp_path):
    standin.use_home(monkeypatch, tmp_path)
    collection = open_collection("beir/quora")
    assert collection.qrels == {}
    with pytest.raises(UserError, match=r"ir_datasets has no qrels for it; .* beir/quora/dev, beir/quora/test"):
        collection.origin.expect_judgments()


@pytest.mark.parametrize("source", ["/nowhere/docs", "./docs", "../docs", "~/docs", "small/docs"])
def test_a_path_is_never_taken_for_an_id(folder, monkeypatch, source):
    monkeypatch.chdir(folder.parent)
    with pytest.raises(UserError, match="no such folder; expected a folder with corpus") as caught:
        open_collection(source)
    assert "did you mean" not in str(caught.value)
    monkeypatch.chdir(folder)
    with pytest.raises(
        UserError, match="collection: expected a folder, a file or an ir_datasets id, got an empty name"
    ):
        open_collection("")  # not the working directory
    for name in ("corpus.jsonl", "qrels/test.tsv"):
        with pytest.raises(UserError, match=f"{name}: is a file without feature vectors; expected a folder with"):
            open_collection(str(folder / name))


def test_a_registered_reader_opens_files_with_other_keys(folder, monkeypatch):
    monkeypatch.setattr(collections, "READERS", Registry("reader"))

    @collections.register
    class Papers(BeirFolder):
        def __init__(self, source):
            super().__init__(source, id_key="pmid", title_key="headline", text_key="abstract")

        @classmethod
        def matches(cls, source):
            return source.endswith("papers")

    papers = folder.rename(folder.parent / "papers")
    write_lines(papers / "corpus.jsonl", [{"pmid": "d1", "headline": "Wings", "abstract": "drag"}])
    write_lines(papers / "queries.jsonl", [{"pmid": "q1", "abstract": "orbit"}, {"pmid": "q2", "abstract": "drag"}])
    collection = open_collection(str(papers))
    assert list(collection.documents()) == list(collection.get(["d1"])) == [("d1", "Wings", "drag")]
    assert collection.queries == {"q1": "orbit", "q2": "drag"}
    assert collection.fingerprint != BeirFolder(str(papers)).fingerprint
    with (papers / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"pmid": "d2"}')
    with pytest.raises(UserError, match=r"corpus.jsonl:2: expected a text under 'abstract', got none"):
        list(open_collection(str(papers)).documents())


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A machine with disks 4 and 5."""
    home = tmp_path_factory.mktemp("home")
    standin.write_standin(home, docs_per_topic=4, topics=["301", "302", "601"])
    return home


@standin.needs_topics
def test_robust04_of_a_user_with_the_disks(monkeypatch, home, capfd):
    standin.use_home(monkeypatch, home)
    collection = open_collection(standin.ROBUST04)
    assert collection.name == "disks45-nocr-trec-robust-2004"
    assert len(collection.queries) == 250
    assert collection.queries["301"] == "International Organized Crime"
    assert len(collection.qrels) == 249
    assert sum(map(len, collection.qrels.values())) == 311_410
    assert [fold.name for fold in collection.folds] == ["1", "2", "3", "4", "5"]
    assert sorted(q for fold in collection.folds for q in fold.test) == sorted(collection.queries)
    assert (collection.has_documents, collection.found_at_once) == (True, False)  # ir_datasets builds a store
    texts = {document.doc_id: document.text for document in collection.documents()}
    assert len(texts) == 12
    doc_ids = sorted(texts, reverse=True)
    assert collection.known([*doc_ids, "FT1"]) == set(doc_ids)
    assert collection.found_at_once
    assert [document.text for document in collection.get(doc_ids)] == [texts[doc_id] for doc_id in doc_ids]
    for doc_id, title, body in collection.get(doc_ids):
        assert (2 < len(title.split()) < 10) == (not doc_id.startswith("FR"))  # which ir_datasets gives no title
        assert texts[doc_id].strip().endswith(f"{title} {body}".strip())
        assert "14 MAY 91" not in title  # which the Financial Times puts before every headline
    with pytest.raises(UserError, match="has no document FT1"):
        list(collection.get(["FT1"]))
    out, err = capfd.readouterr()
    assert out == ""
    assert not [line for line in re.split(r"[\r\n]", err) if line and not line.startswith("docs_iter: ")]  # their bar


@standin.needs_topics
def test_robust04_without_the_disks_names_the_tree(monkeypatch, tmp_path):
    standin.write_topics(tmp_path)
    standin.use_home(monkeypatch, tmp_path)
    collection = open_collection(standin.ROBUST04)
    assert (collection.has_documents, collection.found_at_once) == (False, False)
    expected = (
        r"not on this machine: expected .*/disks45/corpus, with 2295 files that match .*/FBIS/FB\*, .*/LATIMES/LA\*"
    )
    for read in (lambda: list(collection.documents()), lambda: list(collection.get(["FT911-1"]))):
        with pytest.raises(UserError, match=expected):
            read()


def test_a_failed_download_says_what_was_looked_for(monkeypatch, tmp_path, capfd):
    standin.use_home(monkeypatch, tmp_path)
    expected = r"its queries cannot be read: the download failed .*no network.* put the file at .*04\.testset\.gz"
    with pytest.raises(UserError, match=expected):
        open_collection(standin.ROBUST04).queries  # noqa: B018
    assert capfd.readouterr() == ("", "")


def test_two_readers_of_ir_datasets_leave_it_as_it_was(tmp_path, monkeypatch):
    texts = {f"d{number}": f"text {number}" for number in range(600)}  # more than are read together
    write_ids(monkeypatch, tmp_path / "ids", {"toy": {}}, texts)
    logs = library().log

    def state():
        logger = logs.easy().logger()
        return logs.Logger.pbar, logger.level, list(logger.filters), list(logger.handlers)

    before = state()
    first, second = open_collection("toy").documents(), open_collection("toy").documents()
    found = [next(first), next(second)]
    third = open_collection("toy").get(list(texts)[:300])
    found.append(next(third))
    assert state() == before
    assert [document.doc_id for document in (*first, *second)] == 2 * list(texts)[1:]
    assert [document.doc_id for document in found] == 3 * ["d0"]
    third.close()
    assert state() == before
