"""The store of tokenised documents."""

import contextlib
import json
import resource

import numpy as np
import pytest

from rerank.data import token_files
from rerank.data import tokens as tokens_module
from rerank.data.arrays import map_array, read_array, write_array
from rerank.data.tokens import make_store, open_store
from rerank.utils import resumable
from rerank.utils.errors import UserError
from tests.support.small_world import WORDS, make_texts
from tests.support.tiny_encoders import make_tokenizer

TEXTS = make_texts({"a": 5, "b": 0, "c": 300})


@pytest.fixture
def tokenizer():
    return make_tokenizer("bert", WORDS)


def opened(folder, tokenizer, texts=TEXTS, max_doc_tokens=100, fingerprint="x", asked=None):
    def of(doc_ids):
        if asked is not None:
            asked.append(doc_ids)
        return (texts[doc_id] for doc_id in doc_ids)

    return open_store(folder, list(texts), of, tokenizer, max_doc_tokens, fingerprint)


def test_it_gives_every_document_its_tokens(tmp_path, tokenizer):
    store = opened(tmp_path, tokenizer)
    for doc_id, text in TEXTS.items():
        assert store[doc_id].tolist() == tokenizer(text, add_special_tokens=False)["input_ids"][:100]
    assert store.statistics() == {
        "documents": 3,
        "documents_cut": 1,
        "documents_empty": 1,
        "tokens": 305,
        "tokens_cut": 200,
    }


def test_documents_are_tokenised_once(tmp_path, tokenizer):
    asked = []
    first = opened(tmp_path, tokenizer, asked=asked)
    again = opened(tmp_path, tokenizer, asked=asked)
    assert len(asked) == 1
    assert again["c"].tolist() == first["c"].tolist()


@pytest.mark.parametrize("change", [{"max_doc_tokens": 50}, {"fingerprint": "y"}, {"texts": {"a": "amber"}}])
def test_other_documents_tokens_or_texts_make_another_store(tmp_path, tokenizer, change):
    opened(tmp_path, tokenizer)
    opened(tmp_path, tokenizer, **change)
    assert len(list(tmp_path.glob("*/"))) == 2


def test_another_tokenizer_makes_another_store(tmp_path, tokenizer):
    opened(tmp_path, tokenizer)
    opened(tmp_path, make_tokenizer("bert", WORDS[:10]))
    assert len(list(tmp_path.glob("*/"))) == 2


def test_an_interrupt_leaves_no_half_store(tmp_path, tokenizer):
    def texts(doc_ids):
        yield "amber"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_store(tmp_path, list(TEXTS), texts, tokenizer, 100, "x")
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.lock"]


MANY = make_texts({f"d{number:03}": number % 7 for number in range(300)}, seed=1)


def interrupted_at(folder, tokenizer, monkeypatch, stop):
    """Opens a store of MANY, saved after each document and interrupted when text `stop` is asked for."""
    asked = []

    def texts(doc_ids):
        for doc_id in doc_ids:
            if doc_id == stop:
                raise KeyboardInterrupt
            asked.append(doc_id)
            yield MANY[doc_id]

    monkeypatch.setattr(tokens_module, "PIECES_PER_CHUNK", 16)
    monkeypatch.setattr(resumable, "SECONDS_BETWEEN_SAVES", 0.0)
    with contextlib.suppress(KeyboardInterrupt):
        open_store(folder, list(MANY), texts, tokenizer, 5, "x")
    return asked


def test_an_interrupted_store_goes_on_and_is_the_same_byte_for_byte(tmp_path, tokenizer, monkeypatch):
    whole = opened(tmp_path / "whole", tokenizer, MANY, 5)
    interrupted_at(tmp_path / "cut", tokenizer, monkeypatch, "d150")
    assert [path.suffix for path in sorted((tmp_path / "cut").glob("*/"))] == [".unfinished"]
    interrupted_at(tmp_path / "cut", tokenizer, monkeypatch, "d280")
    asked = interrupted_at(tmp_path / "cut", tokenizer, monkeypatch, None)
    assert asked[-1] == "d299"
    assert "d200" not in asked
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*/*")} for name in ("cut", "whole")
    )
    assert first == second
    assert set(first) == {"files.json", "id_offsets.npy", "ids.bin", "lengths.npy", "offsets.npy", "tokens.bin"}
    again = opened(tmp_path / "cut", tokenizer, MANY, 5, asked=(asked := []))
    assert asked == []
    assert again.sha256() == whole.sha256() == make_store(list(MANY), MANY.values(), tokenizer, 5).sha256()


@pytest.mark.parametrize("few", [0, 2**17])
def test_ids_in_another_order_than_that_of_the_table_keep_their_rows(tmp_path, tokenizer, monkeypatch, few):
    monkeypatch.setattr(token_files, "FEW", few)
    doc_ids = sorted(MANY, reverse=True)
    store = opened(tmp_path, tokenizer, {doc_id: MANY[doc_id] for doc_id in doc_ids}, 5)
    assert list(store.rows) == doc_ids
    assert [store.rows[doc_id] for doc_id in doc_ids] == list(range(300))
    assert store["d012"].tolist() == tokenizer(MANY["d012"], add_special_tokens=False)["input_ids"][:5]


def test_tokens_that_were_let_go_are_read_again(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(tokens_module, "BYTES_KEPT", 0)
    monkeypatch.setattr(token_files, "FEW", 0)
    store = opened(tmp_path, tokenizer)
    before = store["c"].tolist()
    store.release()
    store.rows.release()
    assert store["c"].tolist() == before


@contextlib.contextmanager
def files_of_at_most(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_takes_a_part_of_the_tokens_is_an_error(tmp_path, tokenizer):
    """The C library keeps the last bytes of a file until it is closed; 305 tokens are 1,220 bytes."""
    with files_of_at_most(1219), pytest.raises(UserError, match="File too large"):
        opened(tmp_path, tokenizer, max_doc_tokens=300)
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.lock"]
    with files_of_at_most(1220):
        assert len(opened(tmp_path, tokenizer, max_doc_tokens=300)["c"]) == 300


def test_a_disk_that_takes_a_part_of_an_array_is_an_error(tmp_path):
    array = np.arange(520)
    with files_of_at_most(4157), pytest.raises(OSError, match="File too large"):
        write_array(tmp_path / "array.npy", array)
    write_array(tmp_path / "array.npy", array)
    assert np.array_equal(read_array(tmp_path / "array.npy", np.int64, 1), array)
    assert np.array_equal(map_array(tmp_path / "array.npy", (np.int64,), 1), array)
    with pytest.raises(ValueError, match="expected numbers of the type int32 or uint32 in 1 dimensions"):
        map_array(tmp_path / "array.npy", (np.int32, np.uint32), 1)


def test_a_damaged_store_is_one_clear_line(tmp_path, tokenizer):
    opened(tmp_path, tokenizer)
    (next(tmp_path.iterdir()) / "offsets.npy").write_bytes(b"?")
    with pytest.raises(UserError, match="remove the folder"):
        opened(tmp_path, tokenizer)


DAMAGES = {
    "emptied": lambda file: file.write_bytes(b""),
    "cut at a token": lambda file: file.write_bytes(file.read_bytes()[:-4]),
    "with a bit flipped": lambda file: file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1])),
    "removed": lambda file: file.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "name", ["tokens.bin", "offsets.npy", "lengths.npy", "ids.bin", "id_offsets.npy", "id_numbers.npy", "files.json"]
)
def test_any_damage_to_a_store_is_noticed(tmp_path, tokenizer, name, damage):
    texts = dict(reversed(TEXTS.items()))  # in an order that is not that of the table
    opened(tmp_path, tokenizer, texts)
    (file,) = tmp_path.glob(f"*/{name}")
    DAMAGES[damage](file)
    with pytest.raises(UserError, match=rf"{file.parent.name}: .*{name}.*; remove the folder and run again"):
        opened(tmp_path, tokenizer, texts)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokens.bin", b""),
        ("tokens.bin", b"\0" * 4),
        ("tokens.bin", b"\0" * 7),
        ("offsets.npy", np.array([0, 5, 5, 104])),
        ("offsets.npy", np.array([0, 5, 5])),
        ("lengths.npy", np.array([5, 0, 1])),
        ("lengths.npy", np.array([5.0, 0.0, 300.0])),
        ("doc_ids.json", b'["a", "c", "b"]'),
    ],
)
def test_a_store_of_an_older_version_has_matching_sizes(tmp_path, tokenizer, name, content):
    expected = opened(tmp_path, tokenizer)["c"].tolist()
    (folder,) = tmp_path.glob("*/")
    for file in ("files.json", "ids.bin", "id_offsets.npy"):
        (folder / file).unlink()
    (folder / "doc_ids.json").write_text(json.dumps(list(TEXTS)))
    assert opened(tmp_path, tokenizer)["c"].tolist() == expected
    if isinstance(content, bytes):
        (folder / name).write_bytes(content)
    else:
        np.save(folder / name, content)
    with pytest.raises(
        UserError, match=r"(cannot be read \(.*|are of other ids than asked); remove the folder and run again"
    ):
        opened(tmp_path, tokenizer)
