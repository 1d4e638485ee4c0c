"""The saved state of a training: any damage to it, or to what it keeps, ends the command with one line."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file

from rerank.losses import smoothi
from rerank.training import loop
from rerank.utils.errors import UserError
from tests.support.small_task import open_task, train_task, weights_of
from tests.support.small_world import make_lists

WORLD = make_lists(queries=4, documents=3)


def trained(encoder, tmp_path, epochs=2, loss=smoothi, validate=lambda run: 0.5, **settings):
    """Trains, or goes on, in tmp_path/run; the first epoch is the best. Returns the weights."""
    task = open_task(encoder, tmp_path, WORLD)
    train_task(task, tmp_path / "run", validate, loss, **{"epochs": epochs, "lists_per_step": 4, "seed": 7} | settings)
    return weights_of(task.model)


@pytest.fixture(scope="module")
def one_epoch(encoder, tmp_path_factory):
    """A folder with a training of one epoch."""
    folder = tmp_path_factory.mktemp("one")
    trained(encoder, folder, epochs=1)
    return folder


@pytest.fixture
def begun(one_epoch, tmp_path):
    """A copy of it to go on in."""
    return shutil.copytree(one_epoch, tmp_path / "begun")


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
        *(("checkpoint.json", damage) for damage in DAMAGES),
        *((name, "with a bit flipped") for name in ("state.safetensors", "history.json")),
        ("state.safetensors", "removed"),
        *(("files.json", damage) for damage in ("emptied", "removed", "an empty list")),
    ],
)
def test_any_damage_to_the_state_is_noticed(encoder, begun, name, damage):
    DAMAGES[damage](begun / "run" / "state" / name)
    place = re.escape(str(begun / "run" / "state"))
    with pytest.raises(
        UserError, match=rf"^{place}: cannot resume training \(.*{name}.*\); remove the folder to start"
    ):
        trained(encoder, begun)


@pytest.mark.parametrize("damage", ["with a bit flipped", "removed"])
def test_a_damaged_checkpoint_of_an_earlier_epoch_is_not_the_result(encoder, begun, damage):
    DAMAGES[damage](begun / "run" / "checkpoint" / "weights")
    with pytest.raises(
        UserError, match=r"run: the best epoch's files have changed since they were written \(checkpoint/"
    ):
        trained(encoder, begun)


@pytest.mark.parametrize("in_background", [False, True])
def test_an_interrupted_training_ends_as_the_whole(encoder, tmp_path, monkeypatch, in_background):
    """The weights and the whole state, with the optimizer's values and the average; no default training is the same."""
    monkeypatch.setattr(loop, "saves_in_background", lambda device: in_background)
    steps = []

    def interrupted(scores, labels, mask):
        steps.append(1)
        if len(steps) > 5:  # in the third epoch
            raise KeyboardInterrupt
        return smoothi(scores, labels, mask)

    sizes = {"epochs": 4, "lists_per_step": 2}
    settings = sizes | {"schedule": "linear", "warmup_ratio": 0.4, "weight_decay": 0.1, "average": 0.9}
    with pytest.raises(KeyboardInterrupt):
        trained(encoder, tmp_path, loss=interrupted, **settings)
    assert len(json.loads((tmp_path / "run" / "state" / "history.json").read_text())) == 2
    parts = trained(encoder, tmp_path, **settings)
    assert torch.equal(parts, trained(encoder, tmp_path / "whole", **settings))
    state, whole = (load_file(folder / "run/state/state.safetensors") for folder in (tmp_path, tmp_path / "whole"))
    assert state.keys() == whole.keys()
    assert all(torch.equal(value, whole[name]) for name, value in state.items())
    assert any(name.startswith("average.") for name in state)
    assert not torch.equal(parts, trained(encoder, tmp_path / "default", **sizes))


def test_the_log_is_written_again_from_the_state(encoder, begun):
    log = begun / "run" / "log.jsonl"
    before = log.read_text()
    log.write_text("damaged")
    trained(encoder, begun, epochs=1)
    assert log.read_text() == before
