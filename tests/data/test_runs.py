"""Runs and judgments of any form are read as a loop over their lines reads them."""

import codecs
import gzip
import os
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.data.runs import read_qrels, read_qrels_arrays, read_run, read_run_arrays
from rerank.data.trec import ranked
from rerank.utils.errors import UserError
from tests.support.any_bytes import bounded

RUN, QRELS, BEIR = 6, 4, 3
HEADER = b"query-id\tcorpus-id\tscore\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trec")


def whole(text):
    if not float(text).is_integer():
        raise ValueError(text)
    return int(float(text))


def loop(content, width):
    """query_id -> [(doc_id, value), …], or the lines one of which is named as wrong; 0 for no lines at all."""
    found, repeated = {}, set()
    for number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        words = line.split()
        if not words or (width == BEIR and words[2:] == [b"score"]):
            continue
        if width == RUN and words[3:4] and words[3].isdigit():  # words may follow the tag
            words = words[:6]
        if len(words) != width or b"\0" in b"".join(words):
            return {number}
        text = words[4 if width == RUN else -1]
        try:
            value = float(text) if width == RUN else whole(text)
            query_id, doc_id = words[0].decode(), words[2 if width == RUN else -2].decode()
        except ValueError:
            return {number}
        largest = 3.4028235677973362e38 if width == RUN else 2**31 - 1
        if not -largest <= value <= largest or b"_" in text:
            return {number}
        before = found.setdefault(query_id, {}).setdefault(doc_id, (value, number))
        if before[1] != number and (width == RUN or before[0] != value):
            repeated.add(number)
    if repeated or not found:
        return repeated or {0}
    values = {query_id: {doc_id: value for doc_id, (value, _) in lines.items()} for query_id, lines in found.items()}
    order = ranked if width == RUN else list
    return {query_id: [(doc_id, of[doc_id]) for doc_id in order(of)] for query_id, of in values.items()}


def outcome(read, path):
    """The same of a reader, or the number of the line that its error names."""
    try:
        return {query_id: list(of.items()) for query_id, of in read(path).items()}
    except UserError as error:
        found = re.match(r"(.*?):(\d*).* expected ", str(error))
    assert found[1] == str(path)
    return int(found[2] or 0)


def expect_same(path, content, width):
    path.write_bytes(content)
    expected = loop(content, width)
    for read in (read_run, read_run_arrays) if width == RUN else (read_qrels, read_qrels_arrays):
        found = outcome(read, path)
        if isinstance(expected, set):
            assert found in expected
        else:
            assert found == expected
            assert list(found) == list(expected)


ids = st.sampled_from(["q1", "q2", "d1", "d10", "d2", "#d", "é", "d\u00a0", "1", "0x1", "\ufeffq", '"'])
scores = st.sampled_from(["1", "2.5", "2.50000001", "-0", "0.0", "1e-3", "1E2", ".5", "3.4028235e38", "16777217"])
odd_scores = st.sampled_from(["nan", "inf", "1e39", "1_0", "+1", "0x1p3", "x", "", "1e", "-", "1e400", "1 2"])
grades = st.sampled_from(["0", "1", "1", "2", "-1"])
odd_grades = st.sampled_from(["+1", "01", "1_0", "x", "1.0", "", str(10**30), str(2**31), "2147483647"])
blanks = st.sampled_from([" "] * 8 + ["\t", "  ", "\v", "\r"])
ends = st.sampled_from(["\n"] * 12 + ["\r\n", " \n", "\n\n", "", "\n \n"] * 2 + [" more\n", "\n# a comment\n", "\0\n"])
blocks = st.sampled_from([2**18, 2**18, 8, 20, 60])


@st.composite
def contents(draw, width):
    """A file of lines, most of them well formed; all of them plain in half of the files."""
    plain = draw(st.booleans())
    lines = []
    for _ in range(draw(st.integers(0, 12))):
        blank, end = (" ", "\n") if plain else (draw(blanks), draw(ends))
        good, odd = (scores, odd_scores) if width == RUN else (grades, odd_grades)
        value = draw(odd if draw(st.integers(0, 15)) == 0 else good)
        columns = {
            RUN: [draw(ids), "Q0", draw(ids), "1", value, "tag"],
            QRELS: [draw(ids), "0", draw(ids), value],
            BEIR: [draw(ids), draw(ids), value],
        }[width]
        lines.append(blank.join(columns) + end)
    heads = [HEADER] if width == BEIR else [b"", b"", codecs.BOM_UTF8]
    return draw(st.sampled_from(heads)) + "".join(lines).encode()


@pytest.mark.parametrize("width", [RUN, QRELS, BEIR])
@bounded
@given(st.data(), blocks)
def test_lines_of_any_form(folder, width, data, block):
    """Also in blocks of a few lines, plain ones and others in turn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rerank.data.text_lines.BLOCK", block)
        expect_same(folder / "any", data.draw(contents(width)), width)


@pytest.fixture(scope="module")
def run():
    """A run of several blocks, with ties, as the lines of a file and as dictionaries."""
    draw, lines, found = random.Random(0), [], {}
    for query in range(200):
        values = sorted((round(draw.gauss(0, 5), 1) for _ in range(100)), reverse=True)
        of = {f"d{number}": value for number, value in zip(draw.sample(range(1000), 100), values, strict=True)}
        lines += [f"q{query} Q0 {doc_id} {rank} {value} tag\n" for rank, (doc_id, value) in enumerate(of.items(), 1)]
        found[f"q{query}"] = of
    return lines, found


FORMS = {
    "as written": "".join,
    "gzipped": lambda lines: gzip.compress("".join(lines).encode()),
    "shuffled": lambda lines: "".join(random.Random(1).sample(lines, len(lines))),
    "by rank": lambda lines: "".join(sorted(lines, key=lambda line: int(line.split()[3]))),
    "CRLF and tabs": lambda lines: "".join(lines).replace(" ", "\t").replace("\n", "\r\n"),
    "with empty lines": lambda lines: "\n" + "\n".join(["".join(lines[:997]), "".join(lines[997:])]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("depth", [10, 1000])
def test_a_large_run_in_any_order(folder, run, form, depth):
    lines, expected = run
    content = FORMS[form](lines)
    (folder / "large").write_bytes(content.encode() if isinstance(content, str) else content)
    found = read_run_arrays(folder / "large", depth)
    assert {q: list(of) for q, of in found.items()} == {q: ranked(of)[:depth] for q, of in expected.items()}
    assert found["q7"] == {doc_id: expected["q7"][doc_id] for doc_id in found["q7"]}
    for queries in (["q7"], expected):
        assert list(found.doc_ids_of(queries)) == sorted({doc_id for q in queries for doc_id in found[q]})


@pytest.mark.parametrize("repeated", [0, 5_000, 19_900])
def test_a_repeated_document_is_found_far_from_its_first_line(folder, run, repeated):
    path, (lines, _) = folder / "repeated", run
    query_id, _, doc_id, *_ = lines[repeated].split()
    path.write_text("".join(["\n", *lines, lines[repeated]]))
    for depth, wanted in ((10, {query_id}), (1000, None)):
        with pytest.raises(
            UserError, match=f"{path.name}:20002: expected one line of document {doc_id} for query {query_id}, got"
        ):
            dict(read_run_arrays(path, depth, wanted))
    assert read_run_arrays(path, 10, {"q1", "q2"})["q1"]
    path.write_text("".join([*lines, lines[repeated], "malformed\n"]))
    with pytest.raises(UserError, match=f"{path.name}:20002: expected `query_id Q0 .* got 'malformed'"):
        read_run_arrays(path, 10)


@pytest.mark.parametrize(
    ("read", "lines"), [(read_run, "q1 Q0 d1 1 3 t\nq1 Q0 d1 2 3 t\n"), (read_qrels, "q1 0 d1 1\nq1 0 d1 0\n")]
)
def test_a_repeated_document_is_found_in_a_pipe_which_is_read_once(read, lines):
    reader, writer = os.pipe()
    os.write(writer, lines.encode())
    os.close(writer)
    with pytest.raises(UserError, match=f"/dev/fd/{reader}: expected one line of each document for query q1, got two"):
        read(f"/dev/fd/{reader}")
    os.close(reader)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_ties_at_the_depth_are_cut_by_doc_id(folder, depth):
    (folder / "ties").write_text(
        "".join(f"q{q} Q0 {d} 1 {s} t\n" for d, s in zip("abcd", "2112", strict=True) for q in "12")
    )
    found = read_run_arrays(folder / "ties", depth)
    assert [list(of) for of in found.values()] == [list("dacb")[:depth]] * 2
    assert list(found.doc_ids_of(["q2"])) == sorted("dacb"[:depth])


def test_what_other_tools_write_is_read(folder):
    """Indri and Anserini may write words after the tag; some judgments have grades such as 1.0."""
    (folder / "words").write_text("q Q0 b 1 2.5 indri k1=0.9 b=0.4\nq Q0 a 2 1.5 indri\n")
    assert read_run(folder / "words") == {"q": {"b": 2.5, "a": 1.5}}
    (folder / "grades").write_text("q 0 a 1.0\nq 0 b -2.\nq 0 c 0\nq 0 a 1\n")
    grades = read_qrels(folder / "grades")
    assert grades == {"q": {"a": 1, "b": -2, "c": 0}}
    assert {type(grade) for grade in grades["q"].values()} == {int}
