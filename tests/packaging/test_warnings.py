"""Warnings of our own code fail a test; warnings of other packages never do."""

import warnings

import pytest


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
