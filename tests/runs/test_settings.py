"""Settings as files have them: old names are read, today's are written."""

from dataclasses import replace

import pytest

from rerank.config import Config, OutputSettings, TrainingSettings, replace_setting
from rerank.evaluation.measures import measure_names
from rerank.runs.manifest import read_manifest, version, write_manifest
from rerank.runs.settings import differences, read_toml, save_settings, settings_of
from rerank.utils.errors import UserError

OLD = """
[training]
measure = "ndcg_cut_20"
tokens_per_forward = 64
[warmup]
steps = 4
neighbours = 2
random = 5
"""


def test_old_names_become_todays(tmp_path):
    file = tmp_path / "old.toml"
    file.write_text(OLD)
    assert read_toml(file) == {
        "training": {"measure": measure_names(["nDCG@20"])[0], "max_tokens_per_forward": 64},
        "pretraining": {"steps": 4, "hard_negatives": 2, "random_negatives": 5},
    }
    file.write_text(OLD + "[pretraining]\nsteps = 1\n")
    with pytest.raises(UserError, match=r"old.toml: \[warmup\] is the old name of \[pretraining\]"):
        read_toml(file)


def test_a_file_of_an_older_version_without_todays_keys_is_the_same_experiment(tmp_path):
    config = Config(collection="towns")
    (tmp_path / "config.toml").write_text('[collection]\nsource = "towns"\nfolds = 5\n')
    (tmp_path / "fold1" / "state").mkdir(parents=True)
    save_settings(config, tmp_path / "config.toml")
    with pytest.raises(
        UserError, match=r"other settings: there collection\.language = en; here collection\.language = de"
    ):
        save_settings(replace_setting(config, "collection.language", "de"), tmp_path / "config.toml")


def test_both_names_of_a_measure_are_the_same_setting(tmp_path):
    config = Config(training=TrainingSettings(measure="map"), output=OutputSettings(name="a"))
    save_settings(config, tmp_path / "config.toml")
    (tmp_path / "fold1" / "state").mkdir(parents=True)
    save_settings(replace(config, training=TrainingSettings(measure="AP")), tmp_path / "config.toml")
    with pytest.raises(UserError, match=r"there training.epochs = 100; here training.epochs = 2"):
        save_settings(replace(config, training=TrainingSettings(measure="AP", epochs=2)), tmp_path / "config.toml")
    assert not differences(read_toml(tmp_path / "config.toml"), settings_of(config))


def test_an_unknown_measure_is_left_to_the_command_that_uses_it(tmp_path):
    (tmp_path / "a.toml").write_text('[training]\nmeasure = "ndgc"\n')
    assert read_toml(tmp_path / "a.toml")["training"]["measure"] == "ndgc"


def test_manifests_have_versions_even_of_packages_without_metadata(tmp_path, monkeypatch):
    monkeypatch.setattr("rerank.runs.manifest.PACKAGES", ("torch", "no-such-package"))
    write_manifest(tmp_path / "manifest.json", {"config": {"warmup": {"steps": 3}}, "tokens_per_forward": 8})
    facts = read_manifest(tmp_path / "manifest.json")
    assert facts["versions"]["no-such-package"] is None
    assert facts["versions"]["torch"] == version("torch")
    assert "rerank" in facts["versions"]
    assert facts["config"] == {"pretraining": {"steps": 3}}
    assert facts["max_tokens_per_forward"] == 8
