"""Synthetic texts: Robust04's lengths, and words that are one token each."""

import numpy as np
import pytest

from rerank.data.tokens import tokenise
from rerank.utils.errors import UserError
from scripts.benchmarks.lengths import CUT, document_lengths, make_queries, make_texts, one_piece_words
from tests.support.small_world import WORDS
from tests.support.tiny_encoders import make_tokenizer


def test_half_of_the_documents_are_over_500_and_a_fifth_over_800_where_they_are_cut():
    lengths = document_lengths(20_000, np.random.default_rng(0))
    assert len(lengths) == 20_000
    assert (lengths > 500).mean() == pytest.approx(0.5, abs=0.02)
    assert (lengths == CUT).mean() == pytest.approx(0.2, abs=0.02)
    assert lengths.max() == CUT
    assert lengths.min() >= 1


def test_short_documents_are_those_of_the_same_distribution_that_are_short():
    rng = np.random.default_rng(0)
    lengths, every = document_lengths(20_000, rng, longest=400), document_lengths(20_000, rng)
    assert lengths.max() <= 400
    assert len(lengths) == 20_000
    assert np.median(lengths) == pytest.approx(np.median(every[every <= 400]), rel=0.02)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-r", "modernbert"])
def test_a_word_is_a_token(kind):
    tokenizer = make_tokenizer(kind, WORDS)
    words = one_piece_words(tokenizer)
    assert set(WORDS) <= set(words)
    rng = np.random.default_rng(0)
    texts = make_texts([1, 7, 300], words, rng)
    firsts = tokenise([text.split()[0] for text in texts], tokenizer)  # without a space before it, spelled otherwise
    rest = [len(tokens) - len(first) for tokens, first in zip(tokenise(texts, tokenizer), firsts, strict=True)]
    assert rest == [0, 6, 299]
    assert {len(query.split()) for query in make_queries(50, words, rng)} == {2, 3, 4}


def test_a_tokenizer_without_words_is_a_clear_line():
    with pytest.raises(UserError, match="0 English words are one token, expected 10 or more"):
        one_piece_words(make_tokenizer("bert", []))
