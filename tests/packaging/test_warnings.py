"""Warnings of our own code fail a test; warnings of other packages never do."""

import importlib
import os
import subprocess
import sys
import warnings

import pytest

from tests.support.paths import ROOT

OLD = "import warnings\ndef old():\n    warnings.warn('old is deprecated', DeprecationWarning, stacklevel=2)\n"

LEAKS = """
import gc

from third_party import Broken


def test_file_that_is_not_closed(tmp_path):
    (tmp_path / "file").open("w")
    gc.collect()


def test_destructor_of_another_package():
    Broken()
    gc.collect()
"""


def run_in(module, code):
    """Runs code as if it stood in the module of that name."""
    exec(compile(code, module, "exec"), {"__name__": module})


@pytest.mark.parametrize("module", ["rerank", "rerank.losses.listwise", "scripts.benchmarks", "tests.packaging"])
def test_our_warning_is_an_error(module):
    with pytest.raises(UserWarning, match="mind this"):
        run_in(module, "import warnings; warnings.warn('mind this')")


@pytest.mark.parametrize("module", ["rerankers", "cwl_eval", "rax.tests"])
def test_warning_of_another_package_is_no_error(module):
    with warnings.catch_warnings(record=True) as shown:
        run_in(module, "import warnings; warnings.warn('mind this')")
    assert [str(warning.message) for warning in shown] == ["mind this"]


def test_syntax_warning_of_another_package_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "third_party_syntax.py").write_text("SAME = 1 is 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with warnings.catch_warnings(record=True) as shown:
        module = importlib.import_module("third_party_syntax")
    assert module.SAME
    assert [warning.category for warning in shown] == [SyntaxWarning]


def test_deprecated_call_belongs_to_its_caller(tmp_path, monkeypatch):
    (tmp_path / "third_party_old.py").write_text(OLD)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DeprecationWarning, match="old is deprecated"):
        run_in("rerank.models", "import third_party_old; third_party_old.old()")
    with warnings.catch_warnings(record=True) as shown:
        run_in("another_package", "import third_party_old; third_party_old.old()")
    assert [warning.category for warning in shown] == [DeprecationWarning]


def test_exception_that_cannot_be_raised_is_an_error_only_where_it_is_ours(tmp_path):
    for name, code in {
        "tests/__init__.py": "",
        "tests/test_leaks.py": LEAKS,
        "site-packages/third_party.py": "class Broken:\n    def __del__(self):\n        raise ValueError('broken')\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    flags = ["-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site-packages")}
    words = [sys.executable, "-m", "pytest", *flags]
    ran = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout
    assert "FAILED tests/test_leaks.py::test_file_that_is_not_closed" in ran.stdout
