"""States that a thread writes while the next epoch trains: never half-written, and a resumed training is the same."""

import json
import os
import random
import shutil
import signal
import threading
import time

import pytest
import torch
from accelerate import Accelerator

from rerank.config import TrainingSettings
from rerank.losses import smoothi
from rerank.models.checkpoints import open_cross_encoder, save_cross_encoder
from rerank.runs.layout import PretrainingFolder
from rerank.training import loop, saving
from rerank.training.linked_tensors import read_tensors
from rerank.training.loop import train
from rerank.utils.errors import UserError
from tests.support.forks import own_progress_lock
from tests.support.patience import SECONDS
from tests.support.small_task import ListsTask
from tests.support.small_world import WORDS, make_inputs, make_lists
from tests.support.tiny_encoders import make_encoder

QUERIES, TEXTS, LISTS = make_lists(queries=4, documents=3)


class CheckpointTask(ListsTask):
    """A ListsTask with checkpoints of its model."""

    def __init__(self, model, tokenizer, passages):
        super().__init__(model, passages, LISTS)
        self.tokenizer = tokenizer

    def save(self, folder):
        save_cross_encoder(self.model, self.tokenizer, folder, 800)
        self.saved += 1


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_encoder("bert", tmp_path_factory.mktemp("bert"), WORDS, max_positions=48)


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
    folder.mkdir(exist_ok=True)
    model, tokenizer, max_length = open_cross_encoder(str(encoder), "mean", 0)
    inputs = make_inputs(folder / "tokens", tokenizer, max_length, QUERIES, TEXTS)
    settings = TrainingSettings(epochs=epochs, lists_per_step=4, seed=7, patience=50)
    numbers = values(folder)
    target = PretrainingFolder(folder)
    task = CheckpointTask(model, tokenizer, inputs)
    train(task, loss, target, settings, Accelerator(cpu=True), lambda run: float(next(numbers)))
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def results(folder):
    """What a training leaves, without times."""
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    weights = (folder / "checkpoint" / "model.safetensors").read_bytes()
    return (
        [{k: v for k, v in record.items() if k != "seconds"} for record in log],
        weights,
        read_tensors(folder / "state"),
    )


def assert_same_results(one, other):
    (log, checkpoint, state), (same_log, same_checkpoint, same_state) = results(one), results(other)
    assert log == same_log
    assert checkpoint == same_checkpoint
    assert state.keys() == same_state.keys()
    assert all(torch.equal(state[name], same_state[name]) for name in state)


RISING, FALLING, MIXED = values_of(1, 2, 3, 4), values_of(4, 3, 2, 1), values_of(2, 1, 3, 0)


@pytest.mark.parametrize("values", [RISING, FALLING, MIXED], ids=["rising", "falling", "mixed"])
def test_what_a_thread_writes_is_what_is_written_at_once(encoder, tmp_path, monkeypatch, values):
    at_once = trained(encoder, tmp_path / "at-once", values)
    monkeypatch.setattr(loop, "saves_in_background", lambda device: True)
    assert torch.equal(at_once, trained(encoder, tmp_path / "thread", values))
    assert_same_results(tmp_path / "thread", tmp_path / "at-once")


def test_on_a_cpu_every_epoch_is_saved_and_elsewhere_the_best_and_the_last(encoder, tmp_path, states, monkeypatch):
    trained(encoder, tmp_path / "cpu", MIXED)
    assert states == [1, 2, 3, 4]
    states.clear()
    monkeypatch.setattr(loop, "saves_in_background", lambda device: True)
    trained(encoder, tmp_path / "thread", MIXED)
    assert states == [1, 3, 4]
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


@pytest.mark.parametrize("error", [KeyboardInterrupt, torch.OutOfMemoryError, ValueError])
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
    for _ in range(4):
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


def test_the_best_epoch_s_weights_are_written_once(encoder, tmp_path):
    trained(encoder, tmp_path / "run", RISING, epochs=1)
    checkpoint, state = (tmp_path / "run" / name for name in ("checkpoint", "state"))
    assert (state / "linked0.safetensors").samefile(checkpoint / "model.safetensors")
    links = json.loads((state / "links.json").read_text())
    model, _, _ = open_cross_encoder(str(checkpoint), "mean", 0)
    weights = {f"model.{name}" for name in model.state_dict()}
    assert {name for name in weights if name.startswith("model.encoder.")} <= set(links)
    assert (state / "state.safetensors").stat().st_size < 2.5 * (checkpoint / "model.safetensors").stat().st_size
    trained(encoder, tmp_path / "run", values_of(1, 0), epochs=2)
    assert not (state / "links.json").exists()
    assert not (state / "linked0.safetensors").exists()


def test_the_state_keeps_its_weights_when_the_checkpoint_is_replaced(encoder, tmp_path):
    trained(encoder, tmp_path / "run", RISING, epochs=2)
    other = trained(encoder, tmp_path / "other", FALLING, epochs=1)
    for name in ("checkpoint", "log.jsonl"):
        kept = tmp_path / "run" / name
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    shutil.copytree(tmp_path / "other" / "checkpoint", tmp_path / "run" / "checkpoint")
    resumed = trained(encoder, tmp_path / "run", RISING)
    assert torch.equal(resumed, trained(encoder, tmp_path / "whole", RISING))
    assert not torch.equal(resumed, other)


def test_without_hard_links_the_state_has_all_tensors(encoder, tmp_path, monkeypatch):
    def refused(*arguments):
        raise PermissionError(1, "Operation not permitted")

    trained(encoder, tmp_path / "linked", RISING, epochs=2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refused)
        trained(encoder, tmp_path / "run", RISING, epochs=2)
    assert sorted(path.name for path in (tmp_path / "run" / "state").iterdir()) == [
        "checkpoint.json", "files.json", "history.json", "state.safetensors",
    ]  # fmt: skip
    assert_same_results(tmp_path / "run", tmp_path / "linked")


@pytest.mark.parametrize("name", ["linked0.safetensors", "links.json"])
def test_damage_to_what_is_linked_is_noticed(encoder, tmp_path, name):
    trained(encoder, tmp_path / "run", RISING, epochs=1)
    file = tmp_path / "run" / "state" / name
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match=rf"cannot resume training \({name}: .*; remove the folder to start again"):
        trained(encoder, tmp_path / "run", RISING)
