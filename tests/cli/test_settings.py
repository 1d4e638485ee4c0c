"""Settings as flags and as the sections of a TOML file."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from rerank.cli.app import make_app, with_values
from rerank.cli.main import main
from rerank.config import Config, LossSettings, OutputSettings, TrainingSettings, validate
from rerank.config.flags import setting_flags
from rerank.experiments.grid import read_grid
from rerank.experiments.runs.settings import to_toml
from rerank.utils.errors import UserError
from tests.support.paths import ROOT
from tests.support.small_collection import failed


def takes(command, flag):
    return flag in make_app()[command].assemble_argument_collection()


def test_a_configuration_file_and_flags_that_win_over_it(here, capsys):
    Path("mine.toml").write_text(
        '[collection]\nsource = "towns"\n[encoder]\nname = "encoder"\n'
        '[loss]\nname = "hinge"\nmargin = 2.0\n[loss.smoothi]\ndelta = 0.2\n[loss.approx]\nalpha = 3.0\n'
        '[lists]\nnon_relevant = "all"\n[training]\nepochs = 1\nlists_per_epoch = 4\n'
    )
    main(["train", "--config", "mine.toml", "--fold", "1", "--loss", "smoothi", "--loss.alpha", "10",
          "--loss.stop_gradient"])  # fmt: skip
    kept = json.loads(Path("runs/towns/smoothi/fold1/manifest.json").read_text())["config"]
    loss = {"name": "smoothi", "metric": "ndcg", "alpha": 10.0, "delta": 0.2, "stop_gradient": True}
    assert (kept["loss"], kept["lists"]["non_relevant"]) == (loss, "all")
    assert tomllib.loads(Path("runs/towns/smoothi/config.toml").read_text())["loss"] == loss
    main(["train", "--config", "runs/towns/smoothi/config.toml", "--fold", "1"])  # what was kept means the same
    assert "finished already" in capsys.readouterr().err


def test_robust04_toml_is_the_defaults_and_the_papers_setting(tmp_path):
    file = ROOT / "configs" / "robust04.toml"
    given = tomllib.loads(file.read_text())
    assert given["loss"].pop("hinge") == {"pairs": "matched"}
    assert given == tomllib.loads(to_toml(Config()))
    (tmp_path / "grid.toml").write_text('[[grid]]\nloss.name = ["smoothi", "hinge"]\n')
    ours, hinge = (cell.loss for cell in read_grid(tmp_path / "grid.toml", config=file)[1])
    assert (ours.name, ours.hyperparameters["alpha"]) == ("smoothi", 1.0)
    assert (hinge.name, hinge.hyperparameters) == ("hinge", {"pairs": "matched"})


def test_commands_take_the_settings_that_act_on_them():
    short = ("--lr", "--depth", "--batch-size", "--device", "--seed", "--epochs", "--name", "--config")
    assert all(takes("train", flag) for flag in (*setting_flags(), *short))
    assert all(takes("score", flag) for flag in ("--collection", "--depth", "--device", "--training.tf32", "--config"))
    assert not takes("search", "--training.tf32")
    for command in ("doctor", "retrieve", "score", "search", "serve", "export", "fit"):
        assert not takes(command, "--training.lr")
        assert not takes(command, "--loss.alpha")
        assert takes(command, "--config")


def test_a_flag_of_a_switch_needs_no_value(tmp_path):
    (tmp_path / "grid.toml").write_text("[[grid]]\nlists.relevant = 2\n")
    for flag, expected in (("--loss.no-stop-gradient", False), ("--loss.stop-gradient", True)):
        ((_, (cell,)),) = [read_grid(tmp_path / "grid.toml", with_values([flag, "--loss.alpha", "2"]))]
        assert cell.loss.hyperparameters == {"alpha": 2.0, "stop_gradient": expected}


def test_a_leading_tilde_is_the_home_folder(here, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(here))
    main(["retrieve", "--collection", "~/towns", "--output.folder", "~/runs"])
    assert capsys.readouterr().out.strip() == str(here / "runs" / "towns" / "bm25.run")


def test_python_made_settings_have_the_same_bounds():
    for config, expected in (
        (Config(training=TrainingSettings(epochs=0)), "--training.epochs: got 0, expected 1 or more"),
        (Config(training=TrainingSettings(lr=float("nan"))), "--training.lr: got nan, expected a finite number"),
        (Config(training=TrainingSettings(warmup_ratio=1.5)), "--training.warmup-ratio: got 1.5, expected 0 to 1"),
        (Config(training=TrainingSettings(schedule="cosine")), "--training.schedule: got cosine, expected constant or"),
        (Config(training=TrainingSettings(device="gpu")), "--training.device: got gpu, expected auto"),
        (Config(output=OutputSettings(name="tokens")), "--output.name: got tokens, expected letters"),
        (Config(training=TrainingSettings(epochs=2.5)), "--training.epochs 2.5: expected `int`, got `float`"),
        (Config(training=TrainingSettings(epochs="3")), "--training.epochs '3': expected `int`, got `str`"),
        (Config(training=TrainingSettings(lists_per_epoch="many")), "--training.lists-per-epoch 'many': "),
        (Config(training=TrainingSettings(tf32="yes")), "--training.tf32 'yes': expected `bool`, got `str`"),
        (Config(output=OutputSettings(folder=Path("runs"))), "expected `str`, got `PosixPath`"),
        (Config(loss=LossSettings("smoothi", {"alpha": None})), "--loss.alpha None: "),
    ):
        with pytest.raises(UserError, match=expected):
            validate(config)
    validate(Config(output=OutputSettings(name="tokens-2"), training=TrainingSettings(lr=np.float64(1e-5))))


def test_flags_may_be_left_out_where_pydantic_is_imported(capsys):
    """Cyclopts then checks the values of flags with it, those of flags that are not given too."""
    pytest.importorskip("pydantic")
    assert "--collection ./nowhere: no such file or folder" in failed(capsys, "train", "--collection", "./nowhere")
