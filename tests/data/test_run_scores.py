"""Runs that are written, read, and written again."""

import itertools
import random
from array import array
from pathlib import Path

import pytest

from rerank.data.trec import ranked, read_run, strictly_decreasing, write_run
from rerank.utils.errors import UserError

LARGEST = 3.4028234663852886e38  # float32
EXTREMES = (LARGEST, 1e30, 2.0**60, 2.0**53, 16777217.0, 16777216.0, 1e-6, 4.9e-7, 1e-30, 1e-45, 0.0, -0.0, -1e-45)


def float32(value: float) -> float:
    return array("f", [value])[0]


def draw_scores(draw: random.Random, kind: str, documents: int) -> list[float]:
    if kind == "model":
        return [float32(draw.gauss(0, 3)) for _ in range(documents)]
    if kind == "features":  # equal vectors have equal scores
        vectors = [float32(draw.gauss(20, 9)) for _ in range(max(1, documents // 3))]
        return [draw.choice(vectors) for _ in range(documents)]
    if kind == "close":
        return [float32(27.88026237 + draw.randint(0, 5) * 1.9e-6) for _ in range(documents)]
    if kind == "float64":
        return [draw.gauss(0, 10 ** draw.randint(-9, 9)) for _ in range(documents)]
    if kind == "half":
        return [draw.randint(-200, 200) / 128 for _ in range(documents)]
    if kind == "nine digits":
        return [float(f"{float32(draw.gauss(0, 1)):.9g}") for _ in range(documents)]
    if kind == "largest":  # its nine digits, 3.40282347e+38, are above it as a float64
        return [LARGEST] * documents
    return [draw.choice([*EXTREMES, -3.4e38]) for _ in range(documents)]


@pytest.mark.parametrize(
    "kind", ["model", "features", "close", "float64", "half", "nine digits", "largest", "extremes"]
)
def test_written_scores_strictly_decrease_and_a_run_that_is_read_and_written_is_the_same_file(
    tmp_path: Path, kind: str
) -> None:
    draw = random.Random(kind)
    for trial in range(20):
        documents = [f"d{i}" for i in range(draw.randint(1, 30))]
        run = {
            f"q{trial}-{i}": dict(zip(documents, draw_scores(draw, kind, len(documents)), strict=True))
            for i in range(3)
        }
        write_run(tmp_path / "first.run", run, "tag")
        rows = [line.split(" ") for line in (tmp_path / "first.run").read_text().splitlines()]
        assert [(q, d, r) for q, _, d, r, *_ in rows] == [
            (q, d, str(r)) for q, of in run.items() for r, d in enumerate(ranked(of), 1)
        ]
        for above, below in itertools.pairwise(rows):
            assert above[0] != below[0] or float32(float(above[4])) > float32(float(below[4]))
        again = read_run(tmp_path / "first.run")
        write_run(tmp_path / "again.run", again, "tag")
        assert (tmp_path / "first.run").read_bytes() == (tmp_path / "again.run").read_bytes()
        assert {query_id: list(of) for query_id, of in again.items()} == {q: ranked(of) for q, of in run.items()}


@pytest.mark.parametrize(
    ("scores", "texts"),
    [((1.0078125, 0.9921875), ["1.007812", "0.992188"]), ((27.88026237,) * 2, ["27.8802624", "27.8802605"])],
)
def test_scores_have_six_decimals_and_those_that_tie_nine_digits(tmp_path: Path, scores, texts) -> None:
    write_run(tmp_path / "a.run", {"q": dict(zip("ab", scores, strict=True))}, "t")
    assert [line.split()[4] for line in (tmp_path / "a.run").read_text().splitlines()] == texts


def test_scores_that_tie_or_rise_are_moved_to_the_next_float32_below() -> None:
    import numpy as np

    draw = random.Random(5)
    for _ in range(200):
        unit = draw.choice([1.0, 1e-44, 1e30, 1e-7])
        drawn = [draw.choice([0.0, -0.0, 1.0, -1.0, 2.0, draw.gauss(0, 1)]) * unit for _ in range(draw.randint(1, 30))]
        scores = sorted(drawn, reverse=True) if draw.random() < 0.8 else drawn
        expected = np.array(scores, dtype=np.float32)
        for i in range(1, len(expected)):
            expected[i] = min(expected[i], np.nextafter(expected[i - 1], np.float32("-inf")))
        assert strictly_decreasing(scores, "here") == expected.tolist()
    with pytest.raises(UserError, match=r"here: scores tie at -3.40282347e\+38"):
        strictly_decreasing([-LARGEST, -LARGEST], "here")
    assert strictly_decreasing([], "here") == []
