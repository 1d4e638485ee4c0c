"""How many random one-line faults the tests find.

    python -m scripts.mutate mutants.jsonl --seed 1 --count 40
    python -m scripts.mutate mutants.jsonl --seed 1 --count 40 --before TREE
    python -m scripts.mutate mutants.jsonl --seed 1 --count 30 --packages serving utils

draws changes of single lines in `rerank/`: a comparison, a sign, a logical operator, a constant, a condition or a
returned value. Each is made in a copy of the tree, where tests run until one fails: first the tests of its package
that name the module, then the other tests of the package, and the tests of other packages that name the module. A
test that also fails without the change does not count. With `--before`, only lines are changed that another tree has
too, and its tests are tried with the changes that the tests of this tree do not find. `--packages` draws from these
packages alone, and adds to what the file has. What is in the file already is not tried again. A table ends the
output.
"""

import argparse
import ast
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
COPIED = ("rerank", "tests", "scripts", "docs", "configs", "examples", "README.md", "CONTRIBUTING.md", "pyproject.toml")
SWAPS: dict[type, str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
    ast.And: "or", ast.Or: "and",
}  # fmt: skip
SECONDS_PER_TEST = 300
SECONDS = 3600.0
"""For the tests of a package. A mutant whose tests have not ended by then counts neither as found nor as not found."""


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


def rows_of(mutant: Mutant, root: Path) -> list[int]:
    """The rows of a file that read as the line before the change."""
    file = root / mutant.file
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [row for row, line in enumerate(lines) if line == mutant.before]


def apply(mutant: Mutant, root: Path) -> None:
    """Makes the change in a tree that has the line."""
    file = root / mutant.file
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[rows_of(mutant, root)[mutant.occurrence]] = mutant.after
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tests_of(mutant: Mutant, root: Path) -> tuple[list[str], list[str]]:
    """The doctests of a file and the tests of its package that name the module, and the tests to try after them.

    These are the other tests of the package, and those of other packages that name the module.
    """
    file = Path(mutant.file).with_suffix("")
    module = file.parent if file.name == "__init__" else file
    folder = root / "tests" / (module.parts[1] if len(module.parts) > 1 else "packaging")
    stems = module.parts[2:] or module.parts[1:]
    dotted, parent = (re.escape(".".join(parts)) for parts in (module.parts, module.parts[:-1]))
    named = re.compile(rf"{dotted}\b|from {parent} import .*\b{module.name}\b")
    own, others, elsewhere = [], [], []
    for path in sorted((root / "tests").rglob("test_*.py")):
        is_named, test = named.search(path.read_text("utf-8")) is not None, str(path.relative_to(root))
        if not path.is_relative_to(folder):
            elsewhere += [test] if is_named else []
        else:
            (own if is_named or path.stem.startswith(tuple(f"test_{s}" for s in stems)) else others).append(test)
    return [mutant.file, *own], [*others, *elsewhere]


def outcome(mutant: Mutant, root: Path, stage: int, broken: set[str]) -> dict[str, object]:
    """Whether the tests of a stage find the change (None: no time), the first that does, and the seconds.

    Tests that also fail without the change are added to `broken`, and left out.
    """
    start = time.monotonic()
    found: bool | None = False
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "tree"
        copy.mkdir()
        for part in COPIED:
            if (root / part).is_dir():
                shutil.copytree(root / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            elif (root / part).exists():
                shutil.copy(root / part, copy / part)
        tests, by = tests_of(mutant, copy)[stage], ""
        try:
            while tests:
                apply(mutant, copy)
                by = first_failure(copy, tests, broken)
                shutil.copy(root / mutant.file, copy / mutant.file)
                if not by or not by.startswith(("rerank/", "tests/")) or not first_failure(copy, [by], set()):
                    found = by != ""
                    break
                broken.add(by)
        except subprocess.TimeoutExpired:
            found, by = None, "no time"
    return {"found": found, "by": by, "stage": stage, "seconds": round(time.monotonic() - start)}


def first_failure(tree: Path, tests: list[str], without: set[str]) -> str:
    """The first of the tests that fails, the end of the output if the process died, or nothing."""
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    words += [f"--timeout={SECONDS_PER_TEST}", f"--override-ini=faulthandler_timeout={SECONDS_PER_TEST + 30}"]
    words += [word for test in sorted(without) for word in ("--deselect", test)]
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(
            words, cwd=tree, env=environment, stdout=output, stderr=output, start_new_session=True
        ) as process,
    ):
        try:
            code = process.wait(SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        text = output.read()
    failed = [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if code in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    return failed[0].split(" - ")[0] if failed else text[-200:] or f"exit code {code}"


def read(path: Path) -> dict[Mutant, dict[str, dict]]:
    """The mutants of a file and, for each tree, what became of them."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return {Mutant(*row.pop("mutant")): row for row in rows}


def write(rows: dict[Mutant, dict[str, dict]], path: Path) -> None:
    """Writes the file that `read` reads."""
    text = "".join(json.dumps({"mutant": mutant, **row}) + "\n" for mutant, row in rows.items())
    path.with_suffix(".tmp").write_text(text, encoding="utf-8")
    path.with_suffix(".tmp").replace(path)


def lost(row: dict[str, dict]) -> bool:
    """Whether the tests of the other tree find the mutant, and those of this one do not."""
    return "before" in row and row["before"]["found"] is True


def table(rows: dict[Mutant, dict[str, dict]]) -> str:
    """The mutants found by package, and those that are not found now."""
    lines = ["| package | mutants | found now |", "| --- | ---: | ---: |"]
    for package in [*sorted({Path(mutant.file).parts[1] for mutant in rows}), "all"]:
        those = [row for mutant, row in rows.items() if package in ("all", Path(mutant.file).parts[1])]
        lines.append(f"| {package} | {len(those)} | {sum(row['now']['found'] is True for row in those)} |")
    for mutant, row in rows.items():
        if not row["now"]["found"]:
            before = f", found before by {row['before']['by']}" if lost(row) else ""
            lines.append(f"not found now{before}: {described(mutant)}")
    return "\n".join(lines)


def described(mutant: Mutant) -> str:
    """The file and the line before and after."""
    return f"{mutant.file}: `{mutant.before.strip()}` -> `{mutant.after.strip()}`"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--before", type=Path, metavar="TREE", help="another tree, tried with the same mutants")
    parser.add_argument("--packages", nargs="+", metavar="PACKAGE", help="draw changes in these alone, such as `utils`")
    words = parser.parse_args()
    trees = {"now": words.tree} | ({"before": words.before} if words.before else {})
    drawn = [m for m in mutants(words.tree) if len({len(rows_of(m, tree)) for tree in trees.values()}) == 1]
    if words.packages:
        drawn = [mutant for mutant in drawn if Path(mutant.file).parts[1] in words.packages]
    chosen = random.Random(words.seed).sample(drawn, words.count)
    rows, broken = read(words.out), {tree: set[str]() for tree in trees}
    for tree, stage in itertools.product(trees, (0, 1)):
        for mutant in chosen:
            row = rows.setdefault(mutant, {})
            if row.get("now", {}).get("found") and tree == "before":
                continue
            if tree not in row or (not row[tree]["found"] and row[tree]["stage"] < stage):
                row[tree] = outcome(mutant, trees[tree], stage, broken[tree])
                write(rows, words.out)
                result = f"{tree}, stage {stage + 1}, found {row[tree]['found']} ({row[tree]['seconds']} s)"
                print(f"{result}: {described(mutant)}", flush=True)
    print(table(read(words.out)))


if __name__ == "__main__":
    main()
