"""What the tests of charts and of the report share."""

import pytest

from rerank.runs.results import read_results
from tests.support.small_results import write_results


@pytest.fixture
def folder(tmp_path):
    return write_results(tmp_path, {"good": 0.6, "poor": 0.0})


@pytest.fixture
def results(folder):
    return read_results(folder, "nDCG@5")
