"""States that a thread writes while the next epoch trains: never half-written, and a resumed training is the same."""

import json
import os
import random
import signal
import threading
import time

import pytest
import torch
from safetensors.torch import load_file

from rerank.losses import smoothi
from rerank.models.checkpoints import save_cross_encoder
from rerank.training import loop, saving
from rerank.utils.errors import UserError
from tests.support.forks import own_progress_lock
from tests.support.patience import SECONDS
from tests.support.small_task import ListsTask, open_task, train_task, weights_of, without_times
from tests.support.small_world import make_lists

WORLD = make_lists(queries=4, documents=3)


class CheckpointTask(ListsTask):
    """A ListsTask with checkpoints of its model."""

    def save(self, folder):
        save_cross_encoder(self.model, self.tokenizer, folder, 800)
        self.saved += 1


@pytest.fixture
def background(monkeypatch):
    """States are saved as on a GPU."""
    monkeypatch.setattr(loop, "saves_in_background", lambda device: True)


@pytest.fixture
def states(monkeypatch):
    """The number of epochs of each state that is written."""
    written, save = [], saving.save_state

    def count(folder, tensors, kept, history, best):
        save(folder, tensors, kept, history, best)
        written.append(len(history))

    monkeypatch.setattr(saving, "save_state", count)
    return written


def values_of(*numbers):
    """Validates the epochs of a training, new or resumed, with these numbers."""
    return lambda folder: iter(numbers[len(history_of(folder)) :])


def history_of(folder):
    file = folder / "state" / "history.json"
    return json.loads(file.read_text()) if file.exists() else []


def trained(encoder, folder, values, epochs=4, loss=smoothi):
    """Trains, or goes on, in `folder`; returns the weights."""
    task, numbers = open_task(encoder, folder, WORLD, CheckpointTask), values(folder)
    settings = {"epochs": epochs, "lists_per_step": 4, "seed": 7, "patience": 50}
    train_task(task, folder, lambda run: float(next(numbers)), loss, **settings)
    return weights_of(task.model)


def assert_same_results(one, other):
    """The logs but for the times, the checkpoint's weights and the state."""
    logs = [[json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()] for folder in (one, other)]
    assert without_times(logs[0]) == without_times(logs[1])
    checkpoints = [(folder / "checkpoint" / "model.safetensors").read_bytes() for folder in (one, other)]
    assert checkpoints[0] == checkpoints[1]
    state, same = (load_file(folder / "state" / "state.safetensors") for folder in (one, other))
    assert state.keys() == same.keys()
    assert all(torch.equal(state[name], same[name]) for name in state)


RISING, FALLING, MIXED = values_of(1, 2, 3, 4), values_of(4, 3, 2, 1), values_of(2, 1, 3, 0)


def test_a_thread_writes_the_best_and_the_last_epoch_as_a_cpu_writes_every_one(encoder, tmp_path, states, monkeypatch):
    at_once = trained(encoder, tmp_path / "cpu", MIXED)
    assert states == [1, 2, 3, 4]
    states.clear()
    monkeypatch.setattr(loop, "saves_in_background", lambda device: True)
    assert torch.equal(at_once, trained(encoder, tmp_path / "thread", MIXED))
    assert states == [1, 3, 4]
    assert_same_results(tmp_path / "thread", tmp_path / "cpu")
    assert not saving.saves_in_background(torch.device("cpu"))
    assert saving.saves_in_background(torch.device("cuda"))


def test_a_state_is_due_after_some_minutes(encoder, tmp_path, states, background, monkeypatch):
    monkeypatch.setattr(saving, "SECONDS_BETWEEN_STATES", 0.0)
    trained(encoder, tmp_path / "run", FALLING)
    assert states == [1, 2, 3, 4]


def test_the_next_epoch_trains_while_a_state_is_written(encoder, tmp_path, background, monkeypatch):
    second_epoch, save, waited = threading.Event(), saving.save_state, []

    def slow(*arguments):
        waited.append(second_epoch.wait(SECONDS))
        save(*arguments)

    def training_lists(self, epoch):
        if epoch == 1:
            second_epoch.set()
        return self.lists

    monkeypatch.setattr(saving, "save_state", slow)
    monkeypatch.setattr(CheckpointTask, "training_lists", training_lists)
    trained(encoder, tmp_path / "run", FALLING, epochs=2)
    assert waited == [True, True]


@pytest.mark.parametrize("error", [KeyboardInterrupt, torch.OutOfMemoryError])
def test_an_error_or_an_interrupt_leaves_the_last_whole_epoch(encoder, tmp_path, background, error):
    steps = []

    def loss(scores, labels, mask):
        steps.append(1)
        if len(steps) > 2:
            raise error("CUDA out of memory.")
        return smoothi(scores, labels, mask)

    with pytest.raises(UserError if error is torch.OutOfMemoryError else error):
        trained(encoder, tmp_path / "run", FALLING, loss=loss)
    assert len(history_of(tmp_path / "run")) == 2  # the second epoch was neither the best nor due
    assert torch.equal(trained(encoder, tmp_path / "run", FALLING), trained(encoder, tmp_path / "whole", FALLING))
    assert_same_results(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("place", ["state_tensors", "_copy_into", "the checkpoint"])
def test_an_interrupt_while_an_epoch_is_saved_leaves_an_earlier_one(encoder, tmp_path, background, monkeypatch, place):
    calls = []

    def interrupted(function):
        def call(*arguments):
            calls.append(1)
            result = function(*arguments)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return result

        return call

    with monkeypatch.context() as patch:
        if place == "the checkpoint":
            patch.setattr(CheckpointTask, "save", interrupted(CheckpointTask.save))
        else:
            patch.setattr(saving, place, interrupted(getattr(saving, place)))
        with pytest.raises(KeyboardInterrupt):
            trained(encoder, tmp_path / "run", RISING)
    assert len(history_of(tmp_path / "run")) == 2
    assert not list((tmp_path / "run").glob(".*.part"))
    assert torch.equal(trained(encoder, tmp_path / "run", RISING), trained(encoder, tmp_path / "whole", RISING))
    assert_same_results(tmp_path / "run", tmp_path / "whole")


def test_a_disk_that_refuses_the_thread_s_state_ends_the_training(encoder, tmp_path, background, monkeypatch):
    def full(*arguments):
        raise UserError("state: cannot be written: No space left on device")

    monkeypatch.setattr(saving, "save_state", full)
    with pytest.raises(UserError, match="No space left"):
        trained(encoder, tmp_path / "run", FALLING)


def test_kills_at_any_time_change_nothing(encoder, tmp_path, background, monkeypatch):
    monkeypatch.setattr(saving, "SECONDS_BETWEEN_STATES", 0.0)
    begin = time.monotonic()
    trained(encoder, tmp_path / "whole", MIXED)
    seconds, rng = time.monotonic() - begin, random.Random(0)
    for _ in range(3):
        child = os.fork()
        if not child:
            try:
                own_progress_lock()
                trained(encoder, tmp_path / "run", MIXED)
            finally:
                os._exit(0)
        time.sleep(rng.uniform(0.1, 1) * seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    trained(encoder, tmp_path / "run", MIXED)
    assert_same_results(tmp_path / "run", tmp_path / "whole")
