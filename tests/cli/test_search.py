"""`rerank search`: the hits of a query in the terminal."""

import json
import os
import pty
import re
import sys
from pathlib import Path

import pytest

from rerank.cli.main import main
from rerank.cli.search import hit_lines
from rerank.data.types import Hit, Marked
from tests.support.small_collection import write_german

CHECKPOINT = "runs/towns/smoothi/fold1/checkpoint"


def rows(out):
    return [line.split() for line in out.splitlines() if not line.startswith("      ")]


def test_it_prints_ranks_scores_and_marked_snippets(there, capsys):
    words = ["search", CHECKPOINT, "Amber0 goods", "--top", "4"]
    main([*words, "--collection", "towns"])
    out = capsys.readouterr().out
    head, *hits = rows(out)
    assert " ".join(head) == "rank score document"
    assert [row[0] for row in hits] == ["1", "2", "3", "4"]
    assert [float(row[1]) for row in hits] == sorted((float(row[1]) for row in hits), reverse=True)
    assert "*good*" in out
    assert "\033" not in out
    lines = out.splitlines()
    assert len({line.index(row[2]) for line, row in zip(lines[1::2], hits, strict=True)}) == 1  # aligned
    main(words)
    assert capsys.readouterr().out == out  # the collection that it was trained on
    main([*words, "--depth", "3", "--explain"])
    explained = capsys.readouterr().out
    found = re.findall(r"stages: bm25 (\d) \([\d.]+\), cross-encoder (\d) \((-?[\d.]+)\)$", explained, re.MULTILINE)
    assert {bm25 for bm25, *_ in found} == {"1", "2", "3"}
    assert [row[:2] for row in rows(explained)[1:]] == [[place, score] for _, place, score in found]


@pytest.mark.parametrize("query", ["the of and", "zzzz"])
def test_a_query_that_finds_nothing_is_one_line(there, capsys, query):
    main(["search", CHECKPOINT, query])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no document has a word of the query" in captured.err.splitlines()[-1]


def test_json_and_several_queries_of_a_file(there, capsys):
    main(["search", CHECKPOINT, "good amber0", "--top", "2", "--json"])
    one = json.loads(capsys.readouterr().out)
    assert one["query"] == "good amber0"
    assert [hit["rank"] for hit in one["hits"]] == [1, 2]
    Path("topics.tsv").write_text("t1\tgood amber0\nt2\tzzzz\n")
    main(["search", CHECKPOINT, "--queries", "topics.tsv", "--top", "2", "--json"])
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"query_id": "t1", **one}
    assert second == {"query_id": "t2", "query": "zzzz", "hits": [], "total": 0}
    main(["search", CHECKPOINT, "--queries", "topics.tsv", "--top", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("t")] == ["t1: good amber0", "t2: zzzz"]


def test_words_are_marked_by_the_stems_of_the_language(there, capsys):
    write_german(Path("stadt"))
    main(["search", CHECKPOINT, "häusern", "--collection", "stadt", "--collection.language", "de"])
    assert "Das *Haus* am Markt" in capsys.readouterr().out


def test_a_terminal_gets_colours_and_no_character_that_it_obeys(there, monkeypatch):
    folder = Path("hostile")
    folder.mkdir()
    line = {"_id": "d\033[31m", "title": "a\x9b31mtitle", "text": "good \033]0;owned\007 \033[2J text"}
    (folder / "corpus.jsonl").write_text(json.dumps(line) + "\n")
    shown = {}
    for name, more in {"colour": {}, "plain": {"NO_COLOR": "1"}}.items():
        ours, theirs = pty.openpty()
        with monkeypatch.context() as patch, os.fdopen(theirs, "w") as terminal:
            patch.delenv("NO_COLOR", raising=False)
            for variable, value in ({"TERM": "xterm"} | more).items():
                patch.setenv(variable, value)
            patch.setattr(sys, "stdout", terminal)
            main(["search", CHECKPOINT, "goods", "--collection", "hostile"])
        shown[name] = read_all(ours).decode()
    assert shown["colour"].count("\033") == 2
    assert "\033[1;33mgood\033[0m \\x1b]0" in shown["colour"]
    assert "*good* \\x1b]0" in shown["plain"]
    assert not {"\033", "\007", "\x9b"} & set(shown["plain"])


def read_all(descriptor):
    read = b""
    try:
        while part := os.read(descriptor, 2**16):
            read += part
    except OSError:  # Linux's end of a terminal that nobody has open
        pass
    os.close(descriptor)
    return read


def test_snippets_are_broken_at_the_width_and_marks_stay():
    text = " ".join(["filler"] * 10 + ["wing"] + ["filler"] * 10)
    of_stages = {"a": (12, 100.25), "b": (1, 0.5)}
    hit = Hit("d1", 1, 8.5, Marked("On wings", ((3, 8),)), Marked(text, ((70, 74),)), of_stages, Marked(text))
    lines = list(hit_lines([hit, hit._replace(rank=10, score=-10.0, stages={})], 60, ("<", ">"), ["a", "b"]))
    assert lines[0] == "rank     score  document"
    assert lines[1] == "   1    8.5000  d1  On <wings>"
    assert lines[5] == "      stages: a 12 (100.2500), b 1 (0.5000)"
    assert lines[6] == "  10  -10.0000  d1  On <wings>"
    assert max(len(line) for line in lines) <= 62
    assert " ".join(line.strip() for line in lines[2:5]) == text.replace("wing", "<wing>")
    assert list(hit_lines([hit], 32, ("", ""), ["a", "b"]))[-2:] == [
        "      stages: a 12 (100.2500),",
        "      b 1 (0.5000)",
    ]
    assert list(hit_lines([], 60, ("<", ">"))) == []


def test_no_control_character_is_printed():
    controls = "".join(map(chr, [*range(32), *range(127, 160)])) + "\u202e\u2066"  # and what turns a text
    hit = Hit(f"d{controls}", 1, 0.0, Marked(controls), Marked(f"good{controls}", ((0, 4),)), {}, Marked(""))
    assert not set(controls) & set("".join(hit_lines([hit], 80, ("*", "*"))))
