"""A .zip in BEIR's layout, as published."""

import shutil
import zipfile

import pytest

from rerank.data.collections import open_collection
from rerank.utils.errors import UserError
from tests.support.small_collection import write_collection


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A collection, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_collection(tmp_path / "towns", queries=3, documents=3)


def pack(folder, archive, top="towns/", extra=()):
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(folder.rglob("*")):
            packed.write(file, f"{top}{file.relative_to(folder)}")
        for name in extra:
            packed.writestr(name, "x")
    return archive


@pytest.mark.parametrize("top", ["towns/", "", "another name/"])
def test_a_zip_is_the_collection_of_the_folder_that_it_holds(folder, tmp_path, top):
    archive = pack(folder, tmp_path / "small.zip", top)
    packed, plain = open_collection(str(archive)), open_collection(str(folder))
    assert packed.source == str(archive)
    assert packed.name == "small"
    for part in ("queries", "qrels", "fingerprint"):
        assert getattr(packed, part) == getattr(plain, part)
    assert list(packed.documents()) == list(plain.documents())
    assert list(packed.get(["d2-1", "d0-0"])) == list(plain.get(["d2-1", "d0-0"]))


def test_it_is_extracted_once_for_each_content(folder, tmp_path):
    archive = pack(folder, tmp_path / "small.zip")
    open_collection(str(archive))
    shutil.copy(archive, tmp_path / "copy.zip")
    (tmp_path / "copy.zip").replace(archive)
    open_collection(str(archive))
    (extracted,) = (tmp_path / "cache" / "rerank" / "collections").glob("*/")
    assert len([file for file in extracted.rglob("*") if file.is_file()]) == 3
    (folder / "corpus.jsonl").write_text('{"_id": "d0-0", "text": "other"}\n')
    pack(folder, archive)
    assert [document.text for document in open_collection(str(archive)).documents()] == ["other"]


def test_names_that_lead_out_of_the_folder_stay_in_it(folder, tmp_path):
    evil = ["../evil.tsv", "/evil.tsv", "towns/qrels/../../../evil.tsv"]
    archive = pack(folder, tmp_path / "small.zip", extra=[*evil, "__MACOSX/towns/._corpus.jsonl"])
    assert len(open_collection(str(archive)).queries) == 3
    (extracted,) = (tmp_path / "cache" / "rerank" / "collections").glob("*/")
    assert all(extracted in file.parents for file in tmp_path.rglob("*evil*"))


def test_a_zip_that_is_no_collection_is_one_line(folder, tmp_path):
    archive = pack(folder, tmp_path / "small.zip")
    data = archive.read_bytes()

    def refused(message):
        with pytest.raises(UserError, match=message) as caught:
            open_collection(str(archive))
        assert "\n" not in str(caught.value)
        assert not list(tmp_path.glob("cache/rerank/collections/*/"))

    archive.unlink()
    refused(r"small\.zip: cannot be read: No such file or directory")
    archive.write_bytes(data[: len(data) // 2])
    refused(r"small\.zip: damaged, or no \.zip file \(.*\); get it again")
    place = data.index(b"towns/corpus.jsonl") + 60
    archive.write_bytes(data[:place] + bytes(20) + data[place + 20 :])
    refused(r"small\.zip: damaged, or no \.zip file")
    encrypted = bytearray(data)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = encrypted.find(signature)
        while place >= 0:
            encrypted[place + offset] |= 1
            place = encrypted.find(signature, place + 4)
    archive.write_bytes(bytes(encrypted))
    refused(r"small\.zip: cannot be extracted: .* is encrypted, password required for extraction; extract it yourself")
    pack(folder, archive, extra=["second/corpus.jsonl"])
    refused(r"small\.zip: holds second/corpus\.jsonl and towns/corpus\.jsonl; expected one collection")
    (folder / "corpus.jsonl").rename(folder / "documents.jsonl")
    pack(folder, archive)
    refused(r"small\.zip: holds no corpus\.jsonl; expected one collection: corpus\.jsonl, queries\.jsonl and")
