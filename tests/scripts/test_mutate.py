"""`python -m scripts.mutate` on a package of one function."""

import sys
from pathlib import Path

import pytest

from scripts import mutate

CODE = "def larger(a, b):\n    return max(a, b)\n"
IF = "def larger(a, b):\n    if a > b:\n        return a\n    return b\n"
TEST = "from rerank.small.code import larger\n\n\ndef test_it():\n    assert larger(2, 1) == 2\n"
BROKEN = "\n\ndef test_broken():\n    raise ValueError\n"


def make_tree(root: Path, code: str, test: str) -> Path:
    for name, text in {
        "rerank/__init__.py": "",
        "rerank/small/__init__.py": "",
        "rerank/small/code.py": code,
        "tests/small/test_code.py": test,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_mutants_of_lines_that_both_trees_have_are_found_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = make_tree(tmp_path / "now", CODE, "def test_it():\n    pass\n")
    before = make_tree(tmp_path / "before", f"LIMIT = 1\n{CODE}", BROKEN + TEST)
    changes = {mutant.after.strip() for mutant in mutate.mutants(make_tree(tmp_path / "if", IF, ""))}
    assert changes == {"if a >= b:", "if (not (a > b)):", "return None"}
    out = tmp_path / "mutants.jsonl"
    words = ["mutate", str(out), "--count", "1", "--tree", str(now), "--before", str(before)]
    monkeypatch.setattr(sys, "argv", words)
    mutate.main()
    ((mutant, row),) = mutate.read(out).items()
    assert mutant.after.strip() == "return None"
    assert (row["now"]["found"], row["before"]["found"]) == (False, True)
    assert row["before"]["by"] == "tests/small/test_code.py::test_it"
    assert (now / "rerank/small/code.py").read_text() == CODE
    written, table = out.read_text(), capsys.readouterr().out
    assert "| small | 1 | 0 |" in table
    assert (
        "not found now, found before by tests/small/test_code.py::test_it: rerank/small/code.py: `return max(" in table
    )
    mutate.main()
    assert out.read_text() == written
    assert capsys.readouterr().out in table


def test_a_test_of_another_package_that_names_the_module_is_tried_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = make_tree(tmp_path / "tree", CODE, "def test_it():\n    pass\n")
    (tree / "rerank/large").mkdir()
    (tree / "rerank/large/code.py").write_text("LIMIT = 1\n")
    (tree / "tests/large").mkdir()
    (tree / "tests/large/test_all.py").write_text(TEST)
    words = ["mutate", str(tmp_path / "m.jsonl"), "--count", "1", "--tree", str(tree), "--packages", "small"]
    monkeypatch.setattr(sys, "argv", words)
    mutate.main()
    ((mutant, row),) = mutate.read(tmp_path / "m.jsonl").items()
    assert (mutant.file, row["now"]["stage"]) == ("rerank/small/code.py", 1)
    assert row["now"]["by"] == "tests/large/test_all.py::test_it"
    assert "| small | 1 | 1 |" in capsys.readouterr().out
