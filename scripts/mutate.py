"""How many random one-line faults the tests find.

    python -m scripts.mutate mutants.jsonl --seed 1 --count 40
    python -m scripts.mutate after.jsonl --of mutants.jsonl
    python -m scripts.mutate --compare mutants.jsonl after.jsonl

draws changes of single lines in `rerank/`: a comparison, a sign, a logical operator, a constant, a condition or a
returned value. Each is made in a copy of the tree, where the tests of its package run until one fails. The second
command makes the changes of the first in another tree, whose lines may have moved. What is in the file already is not
tried again.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPIED = ("rerank", "tests", "scripts", "docs", "configs", "examples", "README.md", "CONTRIBUTING.md", "pyproject.toml")
SWAPS: dict[type, str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
    ast.And: "or", ast.Or: "and",
}  # fmt: skip
SECONDS = 600.0


class Mutant(NamedTuple):
    """A changed line: the file, how many lines like it come before it, and the line before and after."""

    file: str
    occurrence: int
    before: str
    after: str


def mutants(root: Path) -> Iterator[Mutant]:
    """Every change of a line that is known here and compiles."""
    for file in sorted((root / "rerank").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        lines = text.splitlines()
        for row, start, end, new in _changes(ast.parse(text)):
            old = lines[row]
            line = old[:start] + (new(old[start:end]) if callable(new) else new) + old[end:]
            if line == old or not old.isascii():
                continue
            changed = "\n".join([*lines[:row], line, *lines[row + 1 :]])
            try:
                compile(changed, str(file), "exec")
            except SyntaxError:
                continue
            yield Mutant(str(file.relative_to(root)), lines[:row].count(old), old, line)


def _changes(tree: ast.AST) -> Iterator[tuple]:
    """The row, the first and the last column of each change, and the new text or a function of the old one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
            yield from _between(node.left, node.comparators[0], SWAPS[type(node.ops[0])])
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
            yield from _between(node.left, node.right, SWAPS[type(node.op)])
        elif isinstance(node, ast.BoolOp):
            yield from _between(node.values[0], node.values[1], SWAPS[type(node.op)])
        elif isinstance(node, ast.If | ast.IfExp | ast.While) and _on_one_line(node.test):
            yield node.test.lineno - 1, node.test.col_offset, node.test.end_col_offset, lambda old: f"(not ({old}))"
        elif isinstance(node, ast.Return) and node.value is not None and _on_one_line(node.value):
            yield node.value.lineno - 1, node.value.col_offset, node.value.end_col_offset, "None"
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int) and _on_one_line(node):
            new = str(not node.value) if isinstance(node.value, bool) else str(node.value + 1)
            yield node.lineno - 1, node.col_offset, node.end_col_offset, new


def _between(left: ast.expr, right: ast.expr, sign: str) -> Iterator[tuple]:
    """The operator between two operands, without brackets around them."""
    if left.end_lineno == right.lineno and left.end_col_offset is not None:
        yield right.lineno - 1, left.end_col_offset, right.col_offset, lambda old: f" {sign} " if old.isascii() else old


def _on_one_line(node: ast.expr) -> bool:
    return node.lineno == node.end_lineno


def apply(mutant: Mutant, root: Path) -> bool:
    """Makes the change in a tree; False if the line is no longer there."""
    file = root / mutant.file
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    places = [row for row, line in enumerate(lines) if line == mutant.before]
    if not places:
        return False
    lines[places[min(mutant.occurrence, len(places) - 1)]] = mutant.after
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return True


def tests_of(mutant: Mutant, root: Path) -> list[str]:
    """The tests of the package of a file, those of the module itself first, and its doctests."""
    package = Path(mutant.file).parts[1]
    folder = root / "tests" / package if package != "__init__.py" else root / "tests" / "packaging"
    own = sorted(folder.rglob(f"test_{Path(mutant.file).stem}.py"))
    others = [path for path in sorted(folder.rglob("test_*.py")) if path not in own]
    return [mutant.file, *(str(path.relative_to(root)) for path in [*own, *others])]


def outcome(mutant: Mutant, root: Path) -> dict[str, object]:
    """Whether the tests find the change, the first that does, and the seconds."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "tree"
        copy.mkdir()
        for part in COPIED:
            if (root / part).is_dir():
                shutil.copytree(root / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            elif (root / part).exists():
                shutil.copy(root / part, copy / part)
        if not apply(mutant, copy):
            return {"found": None, "by": "the line is gone", "seconds": 0}
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        try:
            ended = subprocess.run(
                [*words, *tests_of(mutant, copy)],
                cwd=copy,
                env={**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
            failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            found, by = ended.returncode != 0, failed[0].split(" - ")[0] if failed else ended.stdout[-100:]
        except subprocess.TimeoutExpired:
            found, by = True, "time"
    return {"found": found, "by": by if found else "", "seconds": round(time.monotonic() - start)}


def read(path: Path) -> dict[Mutant, dict[str, object]]:
    """The mutants of a file and what became of them."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return {Mutant(*row["mutant"]): row for row in rows}


def compare(before: Path, after: Path) -> None:
    """Prints a table of the mutants found by package, and those that are no longer found."""
    one, other = read(before), read(after)
    packages = sorted({Path(mutant.file).parts[1] for mutant in one})
    print("| package | mutants | found before | found after |\n| --- | --- | --- | --- |")
    for package in [*packages, "all"]:
        those = [mutant for mutant in one if package in ("all", Path(mutant.file).parts[1])]
        counts = [sum(bool(rows[mutant]["found"]) for mutant in those if mutant in rows) for rows in (one, other)]
        print(f"| {package} | {len(those)} | {counts[0]} | {counts[1]} |")
    for mutant, row in one.items():
        if row["found"] and mutant in other and not other[mutant]["found"]:
            print(f"no longer found: {mutant.file}: {mutant.before.strip()} -> {mutant.after.strip()}: {other[mutant]}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--of", type=Path, help="the file of an earlier run: its mutants in the place of new ones")
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--compare", type=Path, nargs=2)
    words = parser.parse_args()
    if words.compare:
        compare(*words.compare)
        return
    if words.of:
        chosen = list(read(words.of))
    else:
        chosen = random.Random(words.seed).sample(list(mutants(words.tree)), words.count)
    done = read(words.out)
    for number, mutant in enumerate(chosen, 1):
        if mutant in done:
            continue
        row = {"mutant": mutant, **outcome(mutant, words.tree)}
        with words.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        said = "found" if row["found"] else "NOT FOUND"
        change = f"{mutant.before.strip()} -> {mutant.after.strip()}"
        print(f"{number}/{len(chosen)} {said}, {row['seconds']} s, {mutant.file}: {change}", flush=True)


if __name__ == "__main__":
    main()
