"""Packages that compute measures: warnings of their import are ignored, and its errors are not unknown measures."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SYNTAX_WARNING = 'if 1 is "1":\n    pass\n'
"""Source with a SyntaxWarning whenever it is compiled."""


def evaluated(measure: str, packages: Path) -> str:
    """What is printed on evaluating a measure with warnings as errors; `packages` come before those installed."""
    script = f"""
from rerank.utils.errors import UserError
from rerank.evaluation.evaluate import evaluate
try:
    print(evaluate({{"q": {{"a": 1, "b": 0}}}}, {{"q": {{"a": 1.0}}}}, [{measure!r}]))
except UserError as error:
    print("user error:", error)
"""
    path = os.pathsep.join([str(packages), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "error", "-c", script]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(("measure", "value"), [("RBP(rel=1)", "0.1999"), ("ERR@20", "0.0625")])
def test_warnings_of_a_package_that_is_compiled_at_its_first_import(tmp_path: Path, measure: str, value: str) -> None:
    spec = importlib.util.find_spec("cwl")
    assert spec is not None
    assert spec.origin
    shutil.copytree(Path(spec.origin).parent, tmp_path / "cwl", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "cwl" / "cwl_eval.py"
    source.write_text(SYNTAX_WARNING + source.read_text(encoding="utf-8"), encoding="utf-8")
    assert evaluated(measure, tmp_path).startswith(f"{{'{measure}': {{'q': {value}")


def test_warnings_of_a_package_that_is_imported_for_one_measure(tmp_path: Path) -> None:
    (tmp_path / "trectools.py").write_text(SYNTAX_WARNING + "raise ImportError('no module named sarge')\n")
    line = evaluated("RBP(rel=1)@10", tmp_path)
    assert "ir_measures needs more for it: pip install ir-measures[trectools] (no module named sarge); or" in line


@pytest.mark.parametrize("error", ["ValueError('numpy.dtype size changed')", "SyntaxError('invalid syntax')"])
def test_an_error_in_the_import_of_a_package_is_reported_as_it_is(tmp_path: Path, error: str) -> None:
    name, message = error.removesuffix("')").split("('")
    (tmp_path / "trectools.py").write_text(f"raise {error}\n")
    assert evaluated("RBP(rel=1)@10", tmp_path) == (
        f"user error: RBP(rel=1)@10: trectools, which computes it, cannot be imported: {name}: {message}; expected a "
        "working installation: pip install ir-measures[trectools]\n"
    )
    (tmp_path / "cwl.py").write_text(f"raise {error}\n")  # ir_measures imports it, whatever the measure
    assert evaluated("RBP(rel=1)", tmp_path) == (
        f"user error: ir_measures cannot be imported: {name}: {message}; expected a working installation: "
        "pip install --force-reinstall ir-measures cwl-eval\n"
    )
    (tmp_path / "pytrec_eval.py").write_text(f"raise {error}\n")
    assert f"user error: pytrec_eval cannot be imported: {name}: {message}; expected" in evaluated("AP", tmp_path)
