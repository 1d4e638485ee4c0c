"""The saved state of a training: when it is saved, that a resumed training is the same, and what damage does."""

import json
import os
import random
import re
import shutil
import signal
import time
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator

from rerank.losses import smoothi
from rerank.models.checkpoints import save_cross_encoder
from rerank.training import loop, state
from rerank.utils.errors import UserError
from tests.support.processes import ended, fork
from tests.support.small_collection import epochs_of
from tests.support.small_task import ListsTask, open_task, train_task, weights_of
from tests.support.small_world import make_lists

WORLD = make_lists(queries=4, documents=3)
RISING, MIXED = (1, 2, 3, 4), (2, 1, 3, 0)


class CheckpointTask(ListsTask):
    """A ListsTask with checkpoints of its model."""

    def save(self, folder):
        save_cross_encoder(self.model, folder)


def trained(encoder, folder, epochs=2, loss=smoothi, values=(1, 0, 0, 0), accelerator=None, **settings):
    """Trains, or goes on, in `folder`; `values` validate the epochs. Returns the weights."""
    task, numbers = open_task(encoder, folder, WORLD, CheckpointTask), iter(values[len(history_of(folder)) :])
    settings = {"epochs": epochs, "lists_per_step": 4, "seed": 7, "patience": 50} | settings
    train_task(task, folder, lambda run: float(next(numbers)), loss, accelerator, **settings)
    return weights_of(task.model)


def history_of(folder):
    try:
        return json.loads((folder / "state" / "epochs.json").read_text())[0]
    except (OSError, ValueError, IndexError):  # none, or a damaged one
        return []


def assert_same_results(one, other):
    """The logs but for the times, the checkpoint's weights and the state, with the optimizer's values."""
    assert epochs_of(one) == epochs_of(other)
    checkpoints = [(folder / "checkpoint" / "model.safetensors").read_bytes() for folder in (one, other)]
    assert checkpoints[0] == checkpoints[1]
    states = [torch.load(folder / "state" / "state.pt") for folder in (one, other)]
    torch.testing.assert_close(*states, rtol=0, atol=0)


class Card(str):
    """The name of a device that torch takes for the CPU, and the training loop for another one."""

    type = "card"


class OnACard(Accelerator):
    """Trains on a `Card`."""

    device = Card("cpu")

    def __init__(self):
        super().__init__(cpu=True)


@pytest.fixture
def states(monkeypatch):
    """The numbers of epochs that each saved state had."""
    epochs, save = [], loop.save_state
    monkeypatch.setattr(loop, "save_state", lambda *given: epochs.append(len(given[3])) or save(*given))
    return epochs


@pytest.fixture
def epochs_of_100_seconds(monkeypatch):
    """Each validation is 100 seconds after the one before, on the clock of the training loop."""
    clock, score = SimpleNamespace(seconds=0.0, perf_counter=time.perf_counter), CheckpointTask.score
    clock.monotonic = lambda: clock.seconds

    def slow_score(task, part):
        clock.seconds += 100
        return score(task, part)

    monkeypatch.setattr(CheckpointTask, "score", slow_score)
    monkeypatch.setattr(loop, "time", clock)


def test_a_gpu_saves_the_best_epoch_at_the_end_and_a_cpu_every_epoch(encoder, tmp_path, states):
    at_once = trained(encoder, tmp_path / "cpu", 4, values=MIXED)
    assert states == [1, 2, 3, 4]
    states.clear()
    at_the_end = trained(encoder, tmp_path / "gpu", 4, values=MIXED, accelerator=OnACard())
    assert states == [4]
    assert torch.equal(at_once, at_the_end)
    assert_same_results(tmp_path / "gpu", tmp_path / "cpu")


@pytest.mark.parametrize("values", [(1, 2, 0, 0), (2, 1, 0, 0)])
def test_an_interrupted_training_ends_as_the_whole(encoder, tmp_path, states, epochs_of_100_seconds, values):
    """Whether the state was saved with its best epoch or after it; no default training is the same.

    On a GPU a state is due 180 seconds after the one before.
    """
    steps = []

    def interrupted(scores, labels, mask):
        steps.append(1)
        if len(steps) > 5:  # in the third epoch
            raise KeyboardInterrupt
        return smoothi(scores, labels, mask)

    sizes = {"epochs": 4, "lists_per_step": 2, "values": values}
    settings = sizes | {"schedule": "linear", "warmup_ratio": 0.4, "weight_decay": 0.1, "average": 0.9}
    with pytest.raises(KeyboardInterrupt):
        trained(encoder, tmp_path / "parts", loss=interrupted, accelerator=OnACard(), **settings)
    assert states == [2]
    parts = trained(encoder, tmp_path / "parts", **settings)
    assert torch.equal(parts, trained(encoder, tmp_path / "whole", **settings))
    assert_same_results(tmp_path / "parts", tmp_path / "whole")
    assert not torch.equal(parts, trained(encoder, tmp_path / "default", **sizes))


@pytest.mark.parametrize(("owner", "name"), [(torch, "save"), (state, "write_record"), (CheckpointTask, "save")])
def test_an_interrupt_while_an_epoch_is_saved_leaves_an_earlier_one(encoder, tmp_path, monkeypatch, owner, name):
    calls = []

    def interrupted(function):
        def call(*arguments):
            calls.append(1)
            function(*arguments)
            if len(calls) == 3:
                raise KeyboardInterrupt

        return call

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted(getattr(owner, name)))
        with pytest.raises(KeyboardInterrupt):
            trained(encoder, tmp_path / "run", 4, values=RISING)
    assert len(history_of(tmp_path / "run")) == 2
    assert not list((tmp_path / "run").glob(".*.part"))
    again, whole = (trained(encoder, tmp_path / name, 4, values=RISING) for name in ("run", "whole"))
    assert torch.equal(again, whole)
    assert_same_results(tmp_path / "run", tmp_path / "whole")


def test_kills_at_any_time_change_nothing(encoder, tmp_path):
    begin = time.monotonic()
    trained(encoder, tmp_path / "whole", 4, values=MIXED)
    seconds, rng = time.monotonic() - begin, random.Random(0)
    for _ in range(3):
        child = fork(tmp_path / "log", partial(trained, encoder, tmp_path / "run", 4, values=MIXED))
        time.sleep(rng.uniform(0.1, 1) * seconds)
        os.kill(child, signal.SIGKILL)
        ended(child)
    trained(encoder, tmp_path / "run", 4, values=MIXED)
    assert_same_results(tmp_path / "run", tmp_path / "whole")


@pytest.fixture(scope="module")
def one_epoch(encoder, tmp_path_factory):
    """A folder with a training of one epoch."""
    folder = tmp_path_factory.mktemp("one") / "run"
    trained(encoder, folder, epochs=1)
    return folder


@pytest.fixture
def begun(one_epoch, tmp_path):
    """A copy of it to go on in."""
    return shutil.copytree(one_epoch, tmp_path / "run")


DAMAGES = {
    "emptied": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "with a bit flipped": lambda file: file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1])),
    "removed": lambda file: file.unlink(),
    "an empty list": lambda file: file.write_text("[]"),
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("epochs.json", damage) for damage in DAMAGES),
        ("state.pt", "with a bit flipped"),
        ("state.pt", "removed"),
        *(("files.json", damage) for damage in ("emptied", "removed", "an empty list")),
    ],
)
def test_any_damage_to_the_state_is_noticed(encoder, begun, name, damage):
    DAMAGES[damage](begun / "state" / name)
    place = re.escape(str(begun / "state"))
    with pytest.raises(
        UserError, match=rf"^{place}: cannot resume training \(.*{name}.*\); remove the folder to start"
    ):
        trained(encoder, begun, epochs=1)


def test_a_damaged_checkpoint_of_an_earlier_epoch_is_not_the_result(encoder, begun):
    DAMAGES["with a bit flipped"](begun / "checkpoint" / "model.safetensors")
    with pytest.raises(
        UserError, match=r"run: the best epoch's files have changed since they were written \(checkpoint/"
    ):
        trained(encoder, begun)


def test_the_log_is_written_again_from_the_state(encoder, begun):
    log = begun / "log.jsonl"
    before = log.read_text()
    log.write_text("damaged")
    trained(encoder, begun, epochs=1)
    assert log.read_text() == before
