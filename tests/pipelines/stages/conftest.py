"""The world of the stages that are tested."""

import pytest

from tests.pipelines.stages.worlds import open_world


@pytest.fixture
def world(here):
    """The small collection, opened in a copy of its folder."""
    return open_world()
