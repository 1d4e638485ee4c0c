"""The store of document vectors: an interrupted command goes on after the last document, whatever chunk it is in."""

import numpy as np
import pytest

from rerank.data.embeddings import open_embeddings
from rerank.data.store import StoreWriter
from rerank.data.types import Document
from rerank.utils.errors import UserError

DOCUMENTS = [Document(f"d{n}", "", "" if n % 7 == 0 or 128 <= n < 192 else f"text {n}") for n in range(300)]
"""Some without text, which have no vector, among them a whole chunk."""


def encode(texts):
    """A vector for each of one to three passages of a text."""
    numbers = [int(text.split()[1]) for text in texts]
    passages = np.array([1 + number % 3 for number in numbers])
    vectors = [[float(number), float(place)] for number in numbers for place in range(1 + number % 3)]
    return np.array(vectors, np.float32), passages


def stored(folder, encode):
    store = open_embeddings(folder, lambda: iter(DOCUMENTS), len(DOCUMENTS), encode, cosine=True)
    return {doc_id: store.vectors_of(number).tolist() for number, doc_id in enumerate(store.ids)}


@pytest.mark.parametrize("written", [40, 54, 55, 120, 201])
def test_an_interrupted_store_goes_on(tmp_path, monkeypatch, written):
    whole = stored(tmp_path / "whole", encode)
    assert list(whole) == [document.doc_id for document in DOCUMENTS if document.body]
    add, added = StoreWriter.add, []

    def interrupt(writer, *item):
        added.append(item)
        if len(added) > written:
            raise KeyboardInterrupt
        add(writer, *item)

    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            stored(tmp_path / "parts", encode)
    encoded = []
    assert stored(tmp_path / "parts", lambda texts: encoded.append(len(texts)) or encode(texts)) == whole
    assert sum(encoded) < len(whole) - written + 64  # whole chunks are not encoded again


def test_documents_without_text_are_counted_and_none_with_text_is_one_line(tmp_path, caplog):
    stored(tmp_path / "vectors", encode)
    without = sum(not document.body for document in DOCUMENTS)
    assert f"the encoder cannot find {without} documents without text" in caplog.text
    with pytest.raises(UserError, match="none: there is no document with text to encode; expected at least one"):
        open_embeddings(tmp_path / "none", lambda: DOCUMENTS[:1], 1, encode, cosine=True)
    assert not (tmp_path / "none").exists()
