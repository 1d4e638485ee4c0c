"""Runs as arrays have the documents, the order, the checks and the messages of `read_run`."""

import gzip
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.data import run_arrays, run_collectors
from rerank.data.run_arrays import read_run_arrays
from rerank.data.trec import read_run
from rerank.utils.errors import UserError
from tests.support.any_bytes import bounded, damaged

EVERYTHING = 10**6
GOOD = b"q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 1.5 tag\nq2 Q0 d1 1 0.5 tag\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run-arrays")


def outcome(read, path):
    """What a reader makes of a file: each query with its documents in order, or the error."""
    try:
        return {query_id: tuple(documents) for query_id, documents in read(path).items()}
    except UserError as error:
        return str(error)


def expect_same(path, content):
    path.write_bytes(content)
    expected, found = outcome(read_run, path), outcome(lambda path: read_run_arrays(path, EVERYTHING), path)
    assert found == expected
    assert isinstance(found, str) or list(found) == list(expected)


ids = st.sampled_from(["q1", "q2", "d1", "d10", "d2", "#d", "é", "1", "\ufeffq"])
scores = st.sampled_from(["1", "2.5", "2.50000001", "-0", "0.0", "1e-3", "1E2", ".5", "3.4028235e38", "16777217"])
odd = st.sampled_from(["nan", "inf", "1e39", "1_0", "+1", "0x1p3", "x", "", "1e", "-", "1e400", "infinity", "1 2"])
blanks = st.sampled_from([" "] * 8 + ["\t", "  ", "\v", "\r"])
ends = st.sampled_from(["\n"] * 8 + ["\r\n", " \n", "\n\n", " more\n", "", "\n# a comment\n", "\0\n", "\n#\n", "\n \n"])
score_texts = st.integers(0, 15).flatmap(lambda drawn: odd if drawn == 0 else scores)


@st.composite
def lines(draw):
    """A line of a run, most often one that is well formed."""
    blank = draw(blanks)
    return blank.join([draw(ids), "Q0", draw(ids), "1", draw(score_texts), "tag"]) + draw(ends)


@bounded
@given(st.lists(lines(), max_size=12))
def test_lines_of_any_form(folder, drawn):
    expect_same(folder / "any.run", "".join(drawn).encode())


@bounded
@given(damaged(GOOD))
def test_any_bytes(folder, content):
    expect_same(folder / "any.run", content)


@bounded
@given(st.lists(lines(), min_size=1, max_size=12), st.integers(1, 3), st.integers(8, 60))
def test_parts_of_any_size(folder, drawn, together, block):
    """Blocks of a few lines, plain and other ones in turn, which arrays are made of a few at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rerank.data.text_lines.blocks.__defaults__", (block,))
        patch.setattr(run_arrays, "PART", together)
        patch.setattr(run_collectors, "AT_ONCE", together)
        patch.setattr("rerank.data.id_rows.WAITING", together)
        expect_same(folder / "any.run", "".join(drawn).encode())


def large_run(queries, documents, seed=0):
    """Lines of a run, in order, with ties."""
    draw = random.Random(seed)
    for query in range(queries):
        scores = sorted((round(draw.gauss(0, 5), 1) for _ in range(documents)), reverse=True)
        doc_ids = draw.sample(range(10 * documents), documents)
        for rank, (doc_id, score) in enumerate(zip(doc_ids, scores, strict=True), 1):
            yield f"q{query} Q0 d{doc_id} {rank} {score} tag\n"


@pytest.fixture(scope="module")
def large(folder):
    """A run of several blocks, and its lines."""
    content = list(large_run(200, 100))
    (folder / "large.run").write_text("".join(content))
    return folder / "large.run", content


@pytest.mark.parametrize("order", ["as written", "gzipped", "shuffled", "by rank", "CRLF and tabs", "with comments"])
def test_a_large_run_in_any_order(large, folder, order):
    path, content = large[0], list(large[1])
    expected = read_run(path)
    text = "".join(content)
    if order == "shuffled":
        random.Random(1).shuffle(content)
        text = "".join(content)
    elif order == "by rank":
        text = "".join(sorted(content, key=lambda line: int(line.split()[3])))
    elif order == "CRLF and tabs":
        text = text.replace(" ", "\t").replace("\n", "\r\n")
    elif order == "with comments":
        text = "# a header\n" + "".join(
            line + "# a comment\n" * (number % 997 == 0) for number, line in enumerate(content)
        )
    other = folder / "other.run"
    other.write_bytes(gzip.compress(text.encode()) if order == "gzipped" else text.encode())
    found = read_run_arrays(other, 10)
    assert dict(found) == {query_id: tuple(expected[query_id])[:10] for query_id in expected}
    assert found.rows.dtype.itemsize == 4
    assert len(found.rows) == 200 * 10


def test_only_the_documents_of_wanted_queries_are_kept(large):
    path, _ = large
    found = read_run_arrays(path, 5, {"q3", "q150", "other"})
    assert list(found) == list(read_run(path))
    assert {query_id for query_id in found if found[query_id]} == {"q3", "q150"}
    assert found["q150"] == read_run_arrays(path, 5)["q150"]
    assert set(found.ids.to_pylist()) == {*found["q3"], *found["q150"]}


@pytest.mark.parametrize("wanted", [None, {"q7"}])
@pytest.mark.parametrize("repeated", [0, 5_000, 19_999])
def test_a_repeated_document_is_found_far_from_its_first_line_and_before_later_errors(large, folder, repeated, wanted):
    """Also of a query that is not wanted, and where the repetition makes the queries' lines scattered."""
    content = [*large[1], large[1][repeated], "malformed\n"]
    path = folder / "repeated.run"
    path.write_text("".join(content))
    query_id, _, doc_id, *_ = large[1][repeated].split()
    with pytest.raises(UserError, match=f"{path.name}:20001: .* document {doc_id} of query {query_id} again"):
        read_run_arrays(path, 10, wanted)
    path.write_text("".join(["\n", *content][1:-2] + content[-1:]))
    with pytest.raises(UserError, match=f"{path.name}:20001: expected 6 columns"):
        read_run_arrays(path, 10, wanted)


def test_a_damaged_gzip_file_and_a_missing_one(large, folder):
    path = folder / "damaged.run.gz"
    path.write_bytes(gzip.compress("".join(large[1]).encode())[:-20])
    for wrong in (path, folder / "none.run"):
        assert outcome(lambda path: read_run_arrays(path, 10), wrong) == outcome(read_run, wrong)


def test_comments_and_words_after_the_tag_are_logged_as_of_other_readers(folder, caplog):
    path = folder / "logged.run"
    path.write_text("# a comment\nq1 Q0 d1 1 2 tag more\nq1 Q0 d2 1 1 tag\n")
    messages = []
    for read in (read_run, lambda path: read_run_arrays(path, 10)):
        caplog.clear()
        with caplog.at_level("INFO", logger="rerank"):
            read(path)
        messages.append([record.getMessage() for record in caplog.records])
    assert messages[0] == messages[1] != []
