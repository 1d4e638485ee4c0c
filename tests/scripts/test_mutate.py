"""`python -m scripts.mutate` on a package of one function."""

import json
import sys
from pathlib import Path

import pytest

from scripts import mutate

CODE = "def larger(a, b):\n    if a > b:\n        return a\n    return b\n"
TEST = "from rerank.small.code import larger\n\n\ndef test_it():\n    assert larger(2, 1) == 2\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        "rerank/__init__.py": "",
        "rerank/small/__init__.py": "",
        "rerank/small/code.py": CODE,
        "tests/small/test_code.py": TEST,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_mutants_are_found_or_not_and_compared(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tree / "before.jsonl"
    found = {mutant.after.strip() for mutant in mutate.mutants(tree)}
    assert found == {"if a >= b:", "if (not (a > b)):", "return None"}
    monkeypatch.setattr(sys, "argv", ["mutate", str(out), "--seed", "0", "--count", "4", "--tree", str(tree)])
    mutate.main()
    rows = {json.loads(line)["mutant"][3].strip(): json.loads(line)["found"] for line in out.read_text().splitlines()}
    assert rows["if a >= b:"] is False  # the test has no equal numbers
    assert rows["if (not (a > b)):"] is True
    assert (tree / "rerank/small/code.py").read_text() == CODE
    (tree / "tests/small/test_code.py").write_text("def test_it():\n    pass\n")
    (tree / "rerank/small/code.py").write_text(CODE.replace("return b", "return max(a, b)"))
    after = tree / "after.jsonl"
    monkeypatch.setattr(sys, "argv", ["mutate", str(after), "--of", str(out), "--tree", str(tree)])
    mutate.main()
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["mutate", "--compare", str(out), str(after)])
    mutate.main()
    table = capsys.readouterr().out
    assert "| small | 4 | 2 | 0 |" in table
    assert "no longer found: rerank/small/code.py: if a > b: -> if (not (a > b)):" in table
