import gzip
import itertools
import random
from array import array
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from rerank.data.runs import read_qrels, read_run
from rerank.data.trec import ranked, strictly_decreasing, write_qrels, write_run
from rerank.utils.errors import UserError


def file_with(folder: Path, content: str | bytes, name: str = "some.run") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_order_is_float32_score_then_doc_id_descending() -> None:
    assert ranked({"a": 1.0, "b": 3.0, "c": 1.0, "D": 1.0, "é": 1.0}) == ["b", "é", "c", "a", "D"]
    assert ranked({"a": 1.0 + 1e-12, "b": 1.0}) == ["b", "a"]  # one float32, so the id decides
    assert ranked({}) == []


def test_order_is_the_one_that_pytrec_eval_ranks_by() -> None:
    draw = random.Random(0)
    for _ in range(50):
        scores = {f"d{i}": draw.choice([1.0, 1.0 + 1e-9, 1.0 + 1e-6, 2.0, -1e-3, 0.0]) for i in range(6)}
        order = ranked(scores)
        for position, doc_id in enumerate(order, 1):
            values = pytrec_eval.RelevanceEvaluator({"q": {doc_id: 1}}, {"recip_rank"}).evaluate({"q": scores})
            assert values["q"]["recip_rank"] == pytest.approx(1 / position)


GOOD = "1 Q0 a 1 2.0 t\n"
RUN = "`query_id Q0 doc_id rank score tag` with a finite score (float32)"
QRELS = "`query_id 0 doc_id relevance` with an integer relevance"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "some.run: empty file; expected lines of `query_id Q0 doc_id rank score tag`"),
        (" \n\n", "some.run: empty file"),
        (
            GOOD + "1 Q0 b 2 1.0\n",
            f"some.run:2: expected {RUN}, got '1 Q0 b 2 1.0'",
        ),
        (GOOD + "1 Q0 b c 2 1.0 t\n", f"some.run:2: expected {RUN}, got '1 Q0 b c 2 1.0 t'"),
        (GOOD + "# a comment\n", f"some.run:2: expected {RUN}, got '# a comment'"),
        (GOOD + "1 Q0 b 2 1.0 t k1=2\n1 Q0 c 2 high t k1=2\n", f"some.run:3: expected {RUN}, got '1 Q0 c 2 high t'"),
        (GOOD + "1 Q0 b 2 high t\n", f"some.run:2: expected {RUN}, got '1 Q0 b 2 high t'"),
        (GOOD + "1 Q0 b 2 NaN t\n", f"some.run:2: expected {RUN}, got '1 Q0 b 2 NaN t'"),
        (GOOD + "1 Q0 b 2 1e39 t\n", f"some.run:2: expected {RUN}, got '1 Q0 b 2 1e39 t'"),
        (
            GOOD + "2 Q0 a 1 1 t\n1 Q0 a 2 1 t\n",
            "some.run:3: expected one line of document a for query 1, got 2.0 and 1",
        ),
        (GOOD.encode() + b"1 Q0 \xff 2 1.0 t\n", rf"some.run:2: expected {RUN}, got '1 Q0 \\xff 2 1.0 t'"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-6], "some.run: damaged gzip file"),
    ],
)
def test_bad_run_is_one_line_with_file_and_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = file_with(tmp_path, content)
    with pytest.raises(UserError) as error:
        read_run(path)
    assert str(error.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(error.value)


def test_run_is_written_with_six_decimals_where_they_tell_scores_apart(tmp_path: Path) -> None:
    write_run({"q2": {"b": 1.25, "a": 12.3456789}, "q1": {"c": -1}}, tmp_path / "a.run", "bm25")
    assert (tmp_path / "a.run").read_text() == (
        "q2 Q0 a 1 12.345679 bm25\nq2 Q0 b 2 1.250000 bm25\nq1 Q0 c 1 -1.000000 bm25\n"
    )


@pytest.mark.parametrize(
    ("run", "tag", "message"),
    [
        ({"q": {"a": 1.0, "b": float("nan")}}, "t", "query q, document b: expected a finite score .float32., got nan"),
        ({"q": {"a": float("-inf")}}, "t", "query q, document a: expected a finite score .float32., got -inf"),
        ({"q": {"a b": 1.0}}, "t", "name 'a b': expected one without white space"),
        ({"q\t": {"a": 1.0}}, "t", r"name 'q\\t': expected one without white space"),
        ({"q": {"": 1.0}}, "t", "name '': expected"),
        ({"q": {"d\ud800": 1.0}}, "t", "is not Unicode text at character 1"),
        ({"q": {"a": 1.0}}, "my tag", "name 'my tag': expected"),
        ({"q": {}}, "t", "expected a run with documents, got none"),
        (
            {"q": {"a": -3.4028234663852886e38, "b": -3.4028234663852886e38}},
            "t",
            "query q: scores tie at -3.40282347e.38, and no float32 below is left",
        ),
    ],
)
def test_what_no_run_can_hold_is_refused_and_loses_nothing(
    tmp_path: Path, run: dict[str, dict[str, float]], tag: str, message: str
) -> None:
    file_with(tmp_path, GOOD)
    with pytest.raises(UserError, match=message):
        write_run(run, tmp_path / "some.run", tag)
    assert (tmp_path / "some.run").read_text() == GOOD
    assert [path.name for path in tmp_path.iterdir()] == ["some.run"]


def test_qrels_of_trec_and_of_beir(tmp_path: Path) -> None:
    trec = "\ufeff1 0 a 2\r\n1\tQ0\tb\t-2\r\n2 0 a 0\r\n1 0 a 2\r\n"
    beir = "query-id\tcorpus-id\tscore\n1\ta\t2\n1\tb\t-2\n2\ta\t0\n"
    expected = {"1": {"a": 2, "b": -2}, "2": {"a": 0}}
    assert read_qrels(file_with(tmp_path, trec)) == expected
    assert read_qrels(file_with(tmp_path, gzip.compress(trec.encode()))) == expected
    assert read_qrels(file_with(tmp_path, beir)) == expected
    assert read_qrels(file_with(tmp_path, beir.partition("\n")[2])) == expected
    for name in ("qrels.txt", "qrels.txt.gz"):
        write_qrels(expected, tmp_path / name)
        assert read_qrels(tmp_path / name) == expected
    assert (tmp_path / "qrels.txt").read_text() == "1 0 a 2\n1 0 b -2\n2 0 a 0\n"


def test_a_grade_that_no_file_can_hold_is_not_written(tmp_path: Path) -> None:
    highest = {"1": {"a": 2**31 - 1, "b": 1 - 2**31}}
    write_qrels(highest, tmp_path / "qrels.txt")
    with pytest.raises(UserError, match="query 2, document a: expected a grade up to 2,147,483,647, got one of 10 dig"):
        write_qrels({**highest, "2": {"a": 2**31}}, tmp_path / "qrels.txt")
    assert read_qrels(tmp_path / "qrels.txt") == highest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 0 a 1\n1 0 b\n", f"some.run:2: expected {QRELS}, got '1 0 b'"),
        ("1 0 a 1\n1 0 b nan\n", f"some.run:2: expected {QRELS}, got '1 0 b nan'"),
        ("1 0 a 1.0\n1 0 b 1\n1 0 a 0\n", "some.run:3: expected one line of document a for query 1, got 1.0 and 0"),
        ("1 0 a 1\n1 0 b 1.5\n", f"some.run:2: expected {QRELS}, got '1 0 b 1.5'"),
        ("1 0 a 1\n2 0 a 0\n1 0 a 0\n", "some.run:3: expected one line of document a for query 1, got 1 and 0"),
        (
            "query-id\tcorpus-id\tscore\n1\ta\n",
            "some.run:2: expected `query-id corpus-id score` with an integer relevance, got '1 a'",
        ),
        ("query-id\tcorpus-id\tscore\n", "some.run: empty file; expected lines of `query-id corpus-id score`"),
        ("", "some.run: empty file"),
    ],
)
def test_bad_qrels_are_one_line_with_file_and_line(tmp_path: Path, content: str, message: str) -> None:
    path = file_with(tmp_path, content)
    with pytest.raises(UserError) as error:
        read_qrels(path)
    assert str(error.value).startswith(f"{tmp_path}/{message}")


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
        write_run(run, tmp_path / "first.run", "tag")
        rows = [line.split(" ") for line in (tmp_path / "first.run").read_text().splitlines()]
        assert [(q, d, r) for q, _, d, r, *_ in rows] == [
            (q, d, str(r)) for q, of in run.items() for r, d in enumerate(ranked(of), 1)
        ]
        for above, below in itertools.pairwise(rows):
            assert above[0] != below[0] or float32(float(above[4])) > float32(float(below[4]))
        again = read_run(tmp_path / "first.run")
        write_run(again, tmp_path / "again.run", "tag")
        assert (tmp_path / "first.run").read_bytes() == (tmp_path / "again.run").read_bytes()
        assert {query_id: list(of) for query_id, of in again.items()} == {q: ranked(of) for q, of in run.items()}


@pytest.mark.parametrize(
    ("scores", "texts"),
    [((1.0078125, 0.9921875), ["1.007812", "0.992188"]), ((27.88026237,) * 2, ["27.8802624", "27.8802605"])],
)
def test_scores_have_six_decimals_and_those_that_tie_nine_digits(tmp_path: Path, scores, texts) -> None:
    write_run({"q": dict(zip("ab", scores, strict=True))}, tmp_path / "a.run", "t")
    assert [line.split()[4] for line in (tmp_path / "a.run").read_text().splitlines()] == texts


def test_scores_that_tie_or_rise_are_moved_to_the_next_float32_below() -> None:
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
