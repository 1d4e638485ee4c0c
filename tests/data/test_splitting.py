"""How many passages a document has, and what each of them covers."""

import random

import numpy as np

from rerank.data.splitting import NOTHING_SHARED, Splitting


def loop(tokens, room, overlap, title):
    """The passages of a list of tokens: the fewest that fit, of equal length to within one token; found by trying."""
    for count in range(1, len(tokens) + 2):
        total = len(tokens) + (count - 1) * (overlap + title)
        sizes = [(number + 1) * total // count - number * total // count for number in range(count)]
        if max(sizes) > room:
            continue
        passages, end = [], 0
        for number, size in enumerate(sizes):
            repeated = tokens[:title] + tokens[end - overlap : end] if number else []
            new = size - len(repeated)
            passages.append(repeated + tokens[end : end + new])
            end += new
        assert end == len(tokens)
        return passages
    raise AssertionError


def cases():
    rng = random.Random(5)
    for _ in range(600):
        overlap, title = rng.choice([0, 0, 3, 17]), rng.choice([0, 0, 2, 11])
        room = overlap + title + rng.randint(1, 40)
        yield rng.choice([0, 1, room, room + 1, rng.randint(0, 400)]), room, Splitting(overlap, title)


def test_the_passages_are_those_of_a_loop():
    several = 0
    for length, room, splitting in cases():
        tokens = list(range(length))
        expected = loop(tokens, room, *splitting)
        count = int(splitting.passages(length, room))
        assert count == len(expected)
        for number, passage in enumerate(expected):
            begin, end = map(int, splitting.span(length, count, number))
            title = tokens[: splitting.title] if number else []
            assert title + tokens[begin:end] == passage
            assert len(passage) == len(set(passage))  # a repeated title is not in the passage a second time
            if number:
                assert (
                    passage[len(title) :][: splitting.overlap]
                    == expected[number - 1][len(expected[number - 1]) - splitting.overlap :]
                )
        assert int(splitting.total(length, count)) == sum(map(len, expected))
        several += len(expected) > 1
    assert several > 200


def test_arrays_give_what_numbers_give():
    lengths = np.array([0, 5, 40, 41, 300])
    for splitting in (NOTHING_SHARED, Splitting(4, 0), Splitting(0, 3), Splitting(4, 3)):
        counts = splitting.passages(lengths, np.full(5, 40))
        assert counts.tolist() == [int(splitting.passages(length, 40)) for length in lengths.tolist()]
        spans = np.stack(splitting.span(lengths, counts, counts - 1), axis=1)
        assert spans.tolist() == [
            [*map(int, splitting.span(length, count, count - 1))]
            for length, count in zip(lengths.tolist(), counts.tolist(), strict=True)
        ]


def test_settings_are_those_that_are_not_0():
    for splitting in (NOTHING_SHARED, Splitting(4, 0), Splitting(0, 3), Splitting(4, 3)):
        assert Splitting.of(splitting.settings()) == splitting
    assert NOTHING_SHARED.settings() == {}
