"""Lucene indexes: built once, taken from a folder or from Pyserini; what is damaged or missing is one line."""

import json
import shutil
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.collections import open_collection
from rerank.data.types import Document
from rerank.retrieval.bm25 import Searcher
from rerank.retrieval.java import java_class
from rerank.retrieval.lucene_index import IndexedTexts, build_index, choose_index, prebuilt_index, with_indexed_texts
from rerank.utils.errors import UserError
from tests.support import robust04_standin as standin
from tests.support.small_collection import command, failed, write_collection, write_documents, write_german

RETRIEVE = ["retrieve", "--collection", "towns"]
DOCUMENTS = [Document("wing", "", "the drag of a wing"), Document("body", "", "a blunt body")]


def with_raw_documents(documents, folder):
    """An index that stores the raw documents."""
    arguments = ["-collection", "JsonCollection", "-input", "", "-index", str(folder), "-storeRaw"]
    indexer = java_class("io.anserini.index.SimpleIndexer")([*arguments, "-threads", "1"])
    for document in documents:
        indexer.addRawDocument(json.dumps({"id": document.doc_id, "contents": document.text}))
    indexer.close()
    return folder


def test_an_index_with_raw_documents_gives_them_back(tmp_path):
    texts = IndexedTexts("towns", with_raw_documents(DOCUMENTS, tmp_path / "index"))
    assert list(texts.get(["body", "wing"])) == DOCUMENTS[::-1]
    assert list(texts.documents()) == DOCUMENTS
    assert texts.known(["body", "nowhere"]) == {"body"}
    with pytest.raises(UserError, match="has no document nowhere"):
        list(texts.get(["nowhere"]))
    build_index(DOCUMENTS, tmp_path / "own")
    with pytest.raises(UserError, match="does not store the text of document wing"):
        list(IndexedTexts("towns", tmp_path / "own").get(["wing"]))


def test_documents_without_text_are_counted(tmp_path, capfd):
    build_index([*DOCUMENTS, Document("blank", "", " \n"), Document("void", "", "")], tmp_path / "index")
    assert "BM25 cannot find 2 documents without text\n" in capfd.readouterr().err
    with pytest.raises(UserError, match="there is no document with text"):
        build_index([Document("void", "", "")], tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


@pytest.fixture
def towns(tmp_path):
    return write_collection(tmp_path / "towns", queries=3)


def test_an_own_index_is_built_once_for_the_same_documents(towns, tmp_path):
    collection = open_collection(str(towns))
    own = choose_index("auto", collection, tmp_path / "cache")
    written = (own / "segments_1").stat().st_mtime_ns
    assert choose_index("own", collection, tmp_path / "cache") == own
    assert (own / "segments_1").stat().st_mtime_ns == written
    with (towns / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "more", "text": "more drag"}')
    assert choose_index("own", open_collection(str(towns)), tmp_path / "cache") != own


def test_an_index_is_named_by_its_language_unless_it_is_english(tmp_path):
    collection = open_collection(str(write_german(tmp_path / "stadt")))
    english, german = (choose_index("auto", collection, tmp_path / "cache", language=code) for code in ("en", "de"))
    assert german.name == english.name.replace("stadt-", "stadt-de-")
    queries = collection.queries
    assert Searcher(german, language="de").search(queries, 5).keys() > Searcher(english).search(queries, 5).keys()


def test_only_a_folder_with_an_index_or_a_name_that_pyserini_has_is_taken(towns, tmp_path):
    collection = open_collection(str(towns))
    build_index(DOCUMENTS, tmp_path / "index")
    assert choose_index(str(tmp_path / "index"), collection, tmp_path) == tmp_path / "index"
    for open_index in (
        lambda folder: choose_index(str(folder), collection, tmp_path),
        lambda folder: Searcher(folder).search({}, 5),
    ):
        with pytest.raises(UserError, match="not a folder with a Lucene index; expected a file segments_N"):
            open_index(towns)
    with pytest.raises(UserError, match=r"index robust4: neither auto, own, .*did you mean robust04\?"):
        choose_index("robust4", collection, tmp_path)


def test_an_own_index_that_was_damaged_says_what_to_remove(here, capsys):
    for file in Path("runs/towns").glob("bm25*"):
        file.unlink()
    (folder,) = Path("runs/towns/index").glob("*/")
    for damage, words, reason in [
        (lambda: next(folder.glob("*.doc")).write_bytes(b""), RETRIEVE, "of 0 bytes"),
        (lambda: next(folder.glob("*.doc")).unlink(), command("--fold", "1"), "expected a file, found none"),
        (lambda: (folder / "files.json").unlink(), command("--fold", "1"), "files.json: cannot be read: No such file"),
    ]:
        damage()
        line = failed(capsys, *words)
        assert line.startswith(f"rerank: index {folder}: damaged (")
        assert line.endswith("remove the folder to build it again")
        assert reason in line
    shutil.rmtree(folder)
    main(RETRIEVE)
    assert Path("runs/towns/bm25.run").is_file()


@pytest.mark.parametrize("suffix", ["si", "doc", "nvm"])
def test_what_lucene_itself_finds_damaged_is_one_line(tmp_path, suffix):
    index = tmp_path / "index"
    build_index([Document(f"d{number}", "", f"wing of number{number}") for number in range(9)], index, threads=1)
    next(index.glob(f"*.{suffix}")).write_bytes(b"")
    with pytest.raises(UserError, match=r"Lucene cannot read it: .*; if rerank or Pyserini made it, remove the folder"):
        Searcher(index).search({"q": "wing"}, 3)


def test_without_a_network_the_message_says_what_to_do(monkeypatch, tmp_path, capfd):
    standin.block_network(monkeypatch)
    monkeypatch.setenv("PYSERINI_CACHE", str(tmp_path))
    expected = rf"robust04: not at {tmp_path}/indexes/lucene-inverted\.disk45.*download failed.*--first-stage\.run"
    with pytest.raises(UserError, match=expected):
        prebuilt_index("robust04")
    assert capfd.readouterr().out == ""


def test_a_prebuilt_index_is_downloaded_once_and_standard_output_is_left_alone(monkeypatch, tmp_path, capfd):
    build_index(DOCUMENTS, tmp_path / "robust")
    from pyserini import util  # Java has been started as it needs

    archive = Path(shutil.make_archive(str(tmp_path / "robust"), "gztar", tmp_path, "robust"))
    about = {**util.TF_INDEX_INFO["robust04"], "md5": util.compute_md5(archive)}
    about["urls"] = [(tmp_path / "gone.tar.gz").as_uri(), archive.as_uri()]
    monkeypatch.setitem(util.TF_INDEX_INFO, "robust04", about)
    monkeypatch.setenv("PYSERINI_CACHE", str(tmp_path / "cache"))
    download = util.download_url

    def downloaded(*arguments, **settings):
        print("of the application")
        return download(*arguments, **{**settings, "expected_size": None})

    monkeypatch.setattr(util, "download_url", downloaded)
    for _ in range(2):
        assert Searcher(prebuilt_index("robust04")).search({"q": "wing"}, 3)["q"].keys() == {"wing"}
    assert capfd.readouterr().out == "of the application\n" * 2


@standin.needs_topics
def test_robust04_from_the_prebuilt_index_alone(monkeypatch, tmp_path):
    standin.write_standin(tmp_path / "owner", docs_per_topic=10, topics=["301", "350", "401", "601"])
    standin.write_topics(tmp_path / "user")
    cache = tmp_path / "pyserini"
    cached = standin.write_prebuilt_index(cache, tmp_path / "owner")
    standin.use_home(monkeypatch, tmp_path / "owner")
    texts = {document.doc_id: document.text for document in open_collection(standin.ROBUST04).documents()}
    assert {doc_id[:2] for doc_id in texts} == {"FB", "FR", "FT", "LA"}

    standin.use_home(monkeypatch, tmp_path / "user")
    monkeypatch.setenv("PYSERINI_CACHE", str(cache))
    collection = open_collection(standin.ROBUST04)
    index = choose_index("auto", collection, tmp_path / "cache")
    assert index == cached
    run = Searcher(index).search({q: collection.queries[q] for q in ("301", "601")}, depth=20)
    assert len(run["301"]) >= 10

    from_index = with_indexed_texts(collection, index)
    assert from_index.fingerprint != collection.fingerprint
    doc_ids = sorted(texts)
    for document in from_index.get(doc_ids):
        doc_id, text = document.doc_id, document.text
        if doc_id.startswith("FBIS"):  # Anserini drops H3, where FBIS has its titles
            assert texts[doc_id].endswith(text)
            assert len(texts[doc_id]) - len(text) < 25
        else:
            assert text == texts[doc_id]
    assert {document.doc_id for document in from_index.documents()} == set(texts)
    assert from_index.count() == len(texts)
    for doc_id, title, body in from_index.get(doc_ids):
        assert bool(title) == doc_id.startswith(("FT", "LA"))
        assert not title.startswith("FT ")
        assert texts[doc_id].rstrip().endswith(body)
    with pytest.raises(UserError, match="has no document FT1"):
        list(from_index.get(["FT1"]))


@standin.needs_topics
def test_robust04_from_the_disks(monkeypatch, tmp_path):
    standin.write_standin(tmp_path, docs_per_topic=6, topics=["301", "302"])
    standin.use_home(monkeypatch, tmp_path)
    collection = open_collection(standin.ROBUST04)
    index = choose_index("auto", collection, tmp_path / "cache")
    assert index.parent == tmp_path / "cache"
    doc_ids = [document.doc_id for document in collection.documents()]
    assert with_indexed_texts(collection, index).count() == len(doc_ids)
    indexed = with_indexed_texts(collection, with_raw_documents(collection.documents(), tmp_path / "raw"))
    texts = [document.text for document in collection.get(doc_ids)]
    assert [document.text for document in indexed.get(doc_ids)] == texts


def test_documents_that_change_after_their_hash_was_taken_get_into_no_index(tmp_path):
    corpus = write_documents(tmp_path / "towns") / "corpus.jsonl"
    collection = open_collection(str(tmp_path / "towns"))
    assert collection.fingerprint
    corpus.write_text(corpus.read_text().replace("amber", "other"))
    for read in (lambda: choose_index("own", collection, tmp_path / "index"), lambda: list(collection.get(["d1"]))):
        with pytest.raises(UserError, match=r"corpus.jsonl: has changed since it was opened; run the command again"):
            read()
    assert not list((tmp_path / "index").glob("towns-*"))
    assert choose_index("own", open_collection(str(tmp_path / "towns")), tmp_path / "index").is_dir()
