"""What the tests of charts and of the report share."""

import shutil

import pytest

from rerank.experiments.runs.results import open_results
from tests.support.small_results import write_results


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """The results of two experiments, which no test changes: the folder with the collection and runs/."""
    folder = tmp_path_factory.mktemp("written")
    write_results(folder, {"good": 0.6, "poor": 0.0})
    return folder


@pytest.fixture
def folder(written, tmp_path):
    """A copy of runs/towns to work in; the collection is beside it."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    for settings in tmp_path.glob("runs/towns/*/config.toml"):
        settings.write_text(settings.read_text().replace(str(written), str(tmp_path)))
    return tmp_path / "runs" / "towns"


@pytest.fixture
def results(folder):
    return open_results(folder, "nDCG@5")
