"""`python -m scripts.benchmarks tokens`: its documents can be read. No memory is asserted."""

import pytest

from rerank.data.collections import open_collection
from scripts.benchmarks.commands import main
from scripts.benchmarks.tokens import FULL, STEPS, WORDS_OF_A_DOCUMENT, with_full_size, write_corpus
from tests.support.small_collection import failed


def test_the_documents_are_ones_that_we_read(tmp_path):
    write_corpus(tmp_path / "c", 20)
    documents = list(open_collection(str(tmp_path / "c")).documents())
    assert [document.doc_id for document in documents] == [str(number) for number in range(20)]
    assert {len(document.text.split()) for document in documents} == {WORDS_OF_A_DOCUMENT}


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--documents", "99"], "--documents: got 99, expected 10000 or more"), (["--out", "."], "--out .: is a folder")],
)
def test_what_cannot_be_measured(capsys, words, expected):
    assert expected in failed(capsys, "tokens", *words, main=main)


def test_what_is_made_is_extrapolated_to_the_full_size():
    rows = [
        {"step": step, "documents": count, "s": 2.0 + count, "peak MB": 5.0} for step in STEPS for count in (100, 1000)
    ]
    found = with_full_size(rows)
    assert [row.get("full size, s") for row in found] == [None, 2.0 + FULL, None, None, None, 2.0 + FULL, None, None]
    assert found[1]["full size, peak MB"] == 5.0
