"""Any bytes in any file of a run folder give a value or one UserError, in bounded time."""

import pytest
from hypothesis import given

from rerank.config import Config, sections
from rerank.experiments.runs.experiment_results import ExperimentResults, FoldResults
from rerank.experiments.runs.layout import ExperimentFolder
from rerank.experiments.runs.manifest import FORMAT
from rerank.experiments.runs.settings import differences, read_settings, to_toml
from tests.support.any_bytes import bounded, damaged, damaged_json, value_or_error

EPOCH = {"epoch": 1, "loss": 0.5, "ndcg": 0.5, "valid": 0.25, "tokens": 9}
MANIFEST = {"format": FORMAT, "config": {"collection": {"source": "towns"}}, "best_epoch": 1, "manifest_hash": "00"}
SETTINGS = to_toml(Config()).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("any-bytes") / "towns" / "smoothi" / "fold1"
    path.mkdir(parents=True)
    return path


def fold(path):
    return FoldResults(ExperimentFolder(path.parent.parent).fold("1"))


@bounded
@given(damaged_json(EPOCH))
def test_a_log(folder, content):
    for record in value_or_error(lambda path: fold(path).history, folder / "log.jsonl", content) or []:
        assert record["epoch"] + record["valid"] is not None


@bounded
@given(damaged_json(MANIFEST))
def test_a_manifest(folder, content):
    value_or_error(lambda path: fold(path).facts, folder / "manifest.json", content)


@bounded
@given(damaged(SETTINGS))
def test_settings(folder, content):
    def read(path):
        results = ExperimentResults(ExperimentFolder(path.parent))
        return differences(read_settings(path), sections(Config())), results.depth, results.first_stage_file

    value_or_error(read, folder.parent / "config.toml", content)
