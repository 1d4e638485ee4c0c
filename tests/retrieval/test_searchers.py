"""A damaged index is one line that says which folder to remove; one that is valid is left as it is."""

import shutil
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.data.types import Document
from rerank.retrieval.bm25 import build_index, search
from rerank.retrieval.searchers import count_documents, expect_undamaged
from rerank.utils.errors import UserError
from tests.support.small_collection import command, failed

RETRIEVE = ["retrieve", "--collection", "towns"]
PRETRAIN = ["pretrain", "--collection", "towns", "--encoder", "encoder", "--out", "new"]

DAMAGES = {
    "emptied": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "with a bit flipped": lambda file: file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1])),
    "removed": lambda file: file.unlink(),
}


def index_folder() -> Path:
    """The index of the collection."""
    (folder,) = Path("runs/towns/index").glob("*/")
    return folder


def remove_ranking() -> None:
    for file in Path("runs/towns").glob("bm25*"):
        file.unlink()


@pytest.mark.parametrize("damage", DAMAGES)
def test_any_damage_to_any_file_is_noticed(here, damage):
    folder = index_folder()
    for file in sorted(folder.iterdir()):
        if (file.name, damage) == ("files.json", "removed"):  # as of an older version
            continue
        content = file.read_bytes()
        DAMAGES[damage](file)
        with pytest.raises(
            UserError, match=rf"index {folder}: damaged .*; remove the folder to build it again"
        ) as told:
            expect_undamaged(folder)
        assert file.name in str(told.value)
        file.write_bytes(content)
    expect_undamaged(folder)


@pytest.mark.parametrize("words", [RETRIEVE, PRETRAIN, command("--fold", "1")], ids=lambda words: words[0])
def test_every_command_that_opens_it_says_what_to_remove_and_then_works(here, capsys, words):
    remove_ranking()
    folder = index_folder()
    next(folder.glob("*.doc")).write_bytes(b"")
    line = failed(capsys, *words)
    assert line.startswith(f"rerank: index {folder}: damaged (")
    assert line.endswith("remove the folder to build it again")
    shutil.rmtree(folder)
    if words is not PRETRAIN:  # which has no documents long enough
        main(words)
        assert Path("runs/towns/bm25.run").is_file()


def test_an_index_that_has_lost_all_files_is_damaged(here, capsys):
    remove_ranking()
    for file in index_folder().iterdir():
        file.unlink()
    assert "damaged (expected a file segments_N, found none); remove the folder" in failed(capsys, *RETRIEVE)


@pytest.mark.parametrize("suffix", ["si", "fnm", "doc", "tim", "nvm"])
def test_what_lucene_itself_finds_damaged_is_one_line(tmp_path, suffix):
    index = tmp_path / "index"
    build_index([Document(f"d{number}", "", f"wing of number{number}") for number in range(9)], index, threads=1)
    (index / "files.json").unlink()
    next(index.glob(f"*.{suffix}")).write_bytes(b"")
    with pytest.raises(UserError, match=r"Lucene cannot read it: .*; if rerank or Pyserini made it, remove the folder"):
        search(index, {"q": "wing"}, 3)


def test_the_error_of_a_thread_of_lucene_is_told(tmp_path):
    """Anserini's searcher would tell that the number of completed tasks is wrong."""
    index = tmp_path / "index"
    build_index([Document(f"d{number}", "", f"wing {number}") for number in range(9)], index)
    with pytest.raises(UserError, match=r"Lucene cannot read it: .*numHits"):
        search(index, {"q": "wing"}, depth=0)


def test_an_index_of_an_older_version_is_taken(here, capsys):
    folder = index_folder()
    expected = Path("runs/towns/bm25.run").read_bytes()
    (folder / "files.json").unlink()
    (folder / "write.lock").touch()
    remove_ranking()
    main(RETRIEVE)
    assert Path("runs/towns/bm25.run").read_bytes() == expected
    assert count_documents(folder) == 90
    assert not (folder / "files.json").exists()


def test_a_document_that_lucene_cannot_take_is_named_and_the_disk_is_not_blamed(tmp_path):
    documents = [
        Document("good", "", "wing"),
        Document("long" + "x" * 40_000, "", "wing"),
        Document("last", "", "wing"),
    ]
    with pytest.raises(UserError, match=r"^document longx{56}: Lucene cannot take it: .*immense term") as told:
        build_index(documents, tmp_path / "index")
    assert len(str(told.value)) < 400
    assert list(tmp_path.iterdir()) == []
