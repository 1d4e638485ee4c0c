"""What callers give as texts: every kind of sequence is read by position, and what is none is refused."""

import numpy as np
import pandas as pd
import pytest

from rerank.utils.errors import UserError
from rerank.utils.texts import list_of_pairs, list_of_texts

TEXTS = ["wing", "flutter", ""]


@pytest.mark.parametrize(
    "given",
    [TEXTS, tuple(TEXTS), iter(TEXTS), np.array(TEXTS), pd.Series(TEXTS, index=[2, 0, 1]), dict.fromkeys(TEXTS).keys()],
)
def test_sequences_of_texts_are_read_in_their_order(given):
    texts = list_of_texts("documents", given)
    assert texts == TEXTS
    assert {type(text) for text in texts} == {str}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("wing", "documents: expected a sequence of texts, got one text"),
        ({"a": "wing"}, "documents: expected a sequence of texts, got dict"),
        (None, "documents: expected a sequence of texts, got NoneType"),
        ({"wing"}, "documents: expected a sequence of texts, got set"),
        (pd.DataFrame({"text": TEXTS}), "documents: expected a sequence of texts, got DataFrame"),
        (["wing", 7], r"documents\[1\]: expected a text, got int"),
        ([b"wing"], r"documents\[0\]: expected a text, got bytes"),
    ],
)
def test_what_is_no_sequence_of_texts_is_refused(given, message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        list_of_texts("documents", given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("wing", "flutter"), "got one pair of texts; put it into a list"),
        ("wing", "got one text"),
        ([("a", "b"), "ok"], r"pairs\[1\]: expected \(query, document\) texts, got 'ok'"),
        ([{"query": "a", "text": "b"}], r"pairs\[0\]: expected \(query, document\) texts, got {"),
        ([("a", "b", "c")], r"pairs\[0\]: expected"),
        ([("a", None)], r"pairs\[0\]\[1\]: expected a text, got NoneType"),
    ],
)
def test_what_is_no_pair_is_refused(given, message):
    with pytest.raises(TypeError, match=message):
        list_of_pairs(given)


def test_a_lone_surrogate_is_named_by_its_place():
    with pytest.raises(UserError, match=r"^documents\[1\]: is not Unicode text at character 4; expected UTF-8$"):
        list_of_texts("documents", ["plain", "cut \ud83d"])
