"""Experiment trackers by --training.track: registered ones and those of accelerate, on text and on features."""

from pathlib import Path

import pytest
from accelerate.tracking import GeneralTracker

from rerank.cli.main import main
from rerank.training import tracker, tracking
from rerank.utils.registry import Registry
from tests.support.small_collection import command, failed

RECORDS = {}


class Toy(GeneralTracker):
    """Keeps what it is given, by the name of the run."""

    name = "toy"
    requires_logging_directory = False

    def __init__(self, run):
        super().__init__()
        self.run = run

    @property
    def tracker(self):
        return RECORDS

    def start(self):
        RECORDS[self.run] = {"epochs": {}, "finished": False}

    def store_init_configuration(self, values):
        RECORDS[self.run]["settings"] = values

    def log(self, values, step=None, **_):
        RECORDS[self.run]["epochs"][step] = values

    def finish(self):
        RECORDS[self.run]["finished"] = True


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """The toy tracker, registered as a project would do it."""
    monkeypatch.setattr(tracking, "TRACKERS", Registry("tracker"))
    tracker("toy")(lambda run, folder: Toy(run))
    RECORDS.clear()


def test_text_sends_every_epoch_of_every_fold(here):
    main(command("--fold", "1", "--training.track", "toy"))
    main(command("--fold", "2"))  # no setting of its results
    assert set(RECORDS) == {"smoothi/fold1"}
    record = RECORDS["smoothi/fold1"]
    assert record["finished"]
    assert record["settings"]["loss.name"] == "smoothi"
    assert record["settings"]["training.epochs"] == 2
    for values in record["epochs"].values():
        assert list(values) == ["loss", "ndcg", "valid", "first_stage", "seconds"]
    assert list(record["epochs"]) == [1, 2]
    assert "track" in Path("runs/towns/smoothi/config.toml").read_text()


def test_feature_vectors_send_every_epoch(letor):
    main(["train", "--config", "letor.toml", "--fold", "3", "--training.track", "toy"])
    epochs = RECORDS["smoothi/fold3"]["epochs"]
    assert list(epochs) == [1, 2, 3, 4]
    assert all(list(values) == ["loss", "ndcg", "valid", "seconds"] for values in epochs.values())


def test_an_interrupted_training_closes_its_tracker(here, interrupted):
    assert interrupted(command("--fold", "1", "--training.track", "toy")) == 130
    assert RECORDS["smoothi/fold1"]["finished"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wandbb", "no such tracker; did you mean wandb?"),
        ("clearml", "its package is not installed; pip install clearml"),
    ],
)
def test_a_tracker_that_is_not_there_is_refused_before_anything_is_retrieved(here, capsys, monkeypatch, name, expected):
    monkeypatch.setattr(tracking, "filter_trackers", lambda *_, **__: [])
    line = failed(capsys, *command("--training.track", name, "--output.folder", "new"))
    assert f"--training.track {name}: {expected}" in line
    assert not Path("new").exists()
