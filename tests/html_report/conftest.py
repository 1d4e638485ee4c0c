"""What the tests of the report share."""

import pytest

from tests.small_results import write_results


@pytest.fixture
def folder(tmp_path):
    return write_results(tmp_path, {"good": 0.6, "poor": 0.0})
