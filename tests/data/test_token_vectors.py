"""The store of token vectors: a text is encoded once, whatever happens in between."""

import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rerank.data.token_vectors import TokenVectorStore
from rerank.utils.errors import UserError

FIRST = {"a": "one", "b": "two words", "blank": " \n"}


class Encoder:
    """A row for each word of a text, with its letters; remembers what it has encoded."""

    def __init__(self):
        self.read = []

    def __call__(self, text):
        self.read.append(text)
        return np.array([[len(word), ord(word[0])] for word in text.split()], np.uint8).reshape(-1, 2)


def added(folder, texts):
    """The codes of some texts in a store that is opened now, and the texts that were encoded for it."""
    store, encode = TokenVectorStore(folder, 2), Encoder()
    store.add(texts, encode)
    return {name: store[name].tolist() for name in texts}, sorted(encode.read)


def expected(texts):
    return {name: Encoder()(text).tolist() for name, text in texts.items()}


def test_texts_that_the_folder_does_not_have_are_encoded_alone(tmp_path):
    assert added(tmp_path / "s", FIRST) == (expected(FIRST), ["one", "two words"])
    second = {"a": "changed", "again": "two words", "c": "new"}
    assert added(tmp_path / "s", second) == (expected(second), ["changed", "new"])
    assert added(tmp_path / "s", FIRST | {"c": "new"}) == (expected(FIRST | {"c": "new"}), [])


def test_two_stores_of_a_folder_share_what_either_has_encoded(tmp_path):
    stores, encode = [TokenVectorStore(tmp_path / "s", 2) for _ in range(2)], Encoder()
    for number in range(200):
        stores[number % 2].add({f"d{number}": f"text {number // 3}"}, encode)
    assert len(encode.read) == len(set(encode.read)) == 67
    assert all(stores[n % 2][f"d{n}"].tolist() == Encoder()(f"text {n // 3}").tolist() for n in range(200))


def test_threads_that_add_texts_read_their_own_codes(tmp_path):
    store, texts = TokenVectorStore(tmp_path / "s", 2), {f"d{n}": f"text {n:04}" for n in range(1000)}
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def add(seed):
        some = {name: texts[name] for name in random.Random(seed).sample(sorted(texts), 3)}
        store.add(some, Encoder())
        return [name for name, codes in expected(some).items() if store[name].tolist() != codes]

    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(add, range(500))) == [[]] * 500
    finally:
        sys.setswitchinterval(before)


def test_a_text_without_vectors_is_encoded_once(tmp_path):
    assert added(tmp_path / "s", {"x": "one"})[1] == ["one"]
    empty = TokenVectorStore(tmp_path / "s", 2)
    empty.add({"y": "masked"}, lambda text: np.zeros((0, 2), np.uint8))
    assert added(tmp_path / "s", {"y": "masked"}) == ({"y": []}, [])


def test_damaged_codes_are_made_again(tmp_path):
    added(tmp_path / "s", FIRST)
    file = tmp_path / "s" / "codes" / "codes.bin"
    file.write_bytes(b"x" + file.read_bytes()[1:])
    assert added(tmp_path / "s", FIRST) == (expected(FIRST), ["one"])
    assert added(tmp_path / "s", FIRST) == (expected(FIRST), [])
    file.write_bytes(file.read_bytes()[:-1])
    assert added(tmp_path / "s", FIRST) == (expected(FIRST), ["one"])


@pytest.mark.parametrize("before", [{}, {"a": "one"}])
def test_a_folder_that_cannot_be_written_is_read_and_the_rest_is_encoded_in_each_process(tmp_path, monkeypatch, before):
    (tmp_path / "s").mkdir()
    added(tmp_path / "s", before)
    files = {file: file.read_bytes() for file in (tmp_path / "s").rglob("*") if file.is_file()}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    encoded = [text for name, text in FIRST.items() if name not in before and text.strip()]
    for _ in range(2):
        assert added(tmp_path / "s", FIRST) == (expected(FIRST), encoded)
    assert {file: file.read_bytes() for file in (tmp_path / "s").rglob("*") if file.is_file()} == files


def test_a_folder_that_cannot_be_used_is_one_line(tmp_path):
    (tmp_path / "s").write_text("a file")
    with pytest.raises(UserError, match="cannot be written"):
        added(tmp_path / "s", FIRST)


def test_a_file_of_something_else_is_written_again(tmp_path):
    (tmp_path / "s" / "codes").mkdir(parents=True)
    (tmp_path / "s" / "codes" / "items.bin").write_text("no rows" * 100)
    assert added(tmp_path / "s", FIRST) == (expected(FIRST), ["one", "two words"])
    assert added(tmp_path / "s", FIRST) == (expected(FIRST), [])
