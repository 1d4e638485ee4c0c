"""Pairs and chunks that are made when they are asked for, against lists of them."""

import numpy as np
import pytest

from rerank.data.types import Candidates
from rerank.models import pair_chunks
from rerank.models.pair_chunks import chunk_by_length, pairs_of


def draw_lists(rng):
    """Candidates of up to eight queries, some without documents, and the lengths of each pair."""
    counts = rng.integers(0, 9, rng.integers(1, 9)).tolist()
    lists = [
        Candidates(f"q{row}", tuple(f"d{row}-{place}" for place in range(count)), (0,) * count)
        for row, count in enumerate(counts)
    ]
    pairs = [(found.query_id, doc_id) for found in lists for doc_id in found.doc_ids]
    return lists, pairs, {pair: (int(rng.integers(1, 9)), int(rng.integers(1, 40))) for pair in pairs}


class Lengths:
    """The part of a PassageBuilder that chunks need."""

    def __init__(self, of):
        self.of = of

    def sizes(self, pairs):
        found = np.array([self.of[pair] for pair in pairs], dtype=np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]


def chunks_in_a_loop(pairs, lengths, tokens):
    """The pairs by descending longest passage, then by descending tokens, in chunks that are filled one by one."""
    chunks, filled = [], 0
    for pair in sorted(pairs, key=lambda pair: (-lengths[pair][0], -lengths[pair][1])):
        filled += lengths[pair][1]
        if not chunks or filled > tokens:
            chunks.append([])
            filled = lengths[pair][1]
        chunks[-1].append(pair)
    return chunks


def test_chunks_are_those_of_a_loop(monkeypatch):
    monkeypatch.setattr(pair_chunks, "AT_ONCE", 7)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        lists, pairs, lengths = draw_lists(rng)
        tokens = int(rng.integers(1, 80))
        chunks = chunk_by_length(pairs_of(lists), Lengths(lengths), tokens)
        expected = chunks_in_a_loop(pairs, lengths, tokens)
        assert [list(chunk) for chunk in chunks] == expected
        assert [list(chunk) for chunk in chunks[1::2]] == expected[1::2]  # those of the second of two processes
        assert len(chunks) == len(expected)


def test_pairs_are_a_sequence():
    lists, pairs, _ = draw_lists(np.random.default_rng(1))
    found = pairs_of(iter(lists))
    assert list(found) == pairs
    assert (found[-1], found[2:5], found[::-2]) == (pairs[-1], pairs[2:5], pairs[::-2])
    with pytest.raises(IndexError):
        found[len(pairs)]
