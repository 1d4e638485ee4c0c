"""The settings of an experiment as files have them, and in a manifest."""

from dataclasses import replace

import pytest

from rerank.config import Config, OutputSettings, TrainingSettings, replace_setting, sections
from rerank.experiments.runs.manifest import read_manifest, version, write_manifest
from rerank.experiments.runs.settings import differences, read_toml, save_settings
from rerank.utils.errors import UserError


def test_settings_that_a_file_lacks_have_their_defaults(tmp_path):
    config = Config(collection="towns")
    (tmp_path / "config.toml").write_text('[collection]\nsource = "towns"\nfolds = 5\n')
    (tmp_path / "fold1" / "state").mkdir(parents=True)
    save_settings(config, tmp_path / "config.toml")
    with pytest.raises(
        UserError, match=r"other settings: there collection\.language = en; here collection\.language = de"
    ):
        save_settings(replace_setting(config, "collection.language", "de"), tmp_path / "config.toml")


def test_settings_that_change_no_result_may_change(tmp_path):
    config = Config(training=TrainingSettings(measure="AP"), output=OutputSettings(name="a"))
    save_settings(config, tmp_path / "config.toml")
    (tmp_path / "fold1" / "state").mkdir(parents=True)
    save_settings(replace(config, output=OutputSettings(name="b")), tmp_path / "config.toml")
    with pytest.raises(UserError, match=r"there training.epochs = 100; here training.epochs = 2"):
        save_settings(replace(config, training=TrainingSettings(measure="AP", epochs=2)), tmp_path / "config.toml")
    assert not differences(read_toml(tmp_path / "config.toml"), sections(config))


def test_manifests_have_versions_even_of_packages_without_metadata(tmp_path, monkeypatch):
    monkeypatch.setattr("rerank.experiments.runs.manifest.PACKAGES", ("torch", "no-such-package"))
    write_manifest(tmp_path / "manifest.json", {"config": {"training": {"measure": "AP"}}})
    facts = read_manifest(tmp_path / "manifest.json", dict[str, object])
    assert facts["versions"]["no-such-package"] is None
    assert facts["versions"]["torch"] == version("torch")
    assert "rerank" in facts["versions"]
    assert facts["config"] == {"training": {"measure": "AP"}}
