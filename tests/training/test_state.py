"""The saved state of a training: any damage to it, or to what it keeps, ends the command with one line."""

import json
import re

import pytest
import torch
from accelerate import Accelerator

from rerank.config import TrainingSettings
from rerank.losses import smoothi
from rerank.models.checkpoints import open_cross_encoder
from rerank.runs.layout import PretrainingFolder
from rerank.training import loop
from rerank.training.linked_tensors import read_tensors
from rerank.training.loop import train
from rerank.utils.errors import UserError
from tests.support.small_task import ListsTask
from tests.support.small_world import WORDS, make_inputs, make_lists
from tests.support.tiny_encoders import make_encoder

QUERIES, TEXTS, LISTS = make_lists(queries=4, documents=3)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_encoder("bert", tmp_path_factory.mktemp("bert"), WORDS, max_positions=48)


def trained(encoder, tmp_path, epochs=2, loss=smoothi, validate=lambda run: 0.5, **settings):
    """Trains, or goes on, in tmp_path/run; the first epoch is the best. Returns the weights."""
    model, tokenizer, max_length = open_cross_encoder(str(encoder), "mean", 0)
    task = ListsTask(model, make_inputs(tmp_path / "tokens", tokenizer, max_length, QUERIES, TEXTS), LISTS)
    settings = TrainingSettings(**{"epochs": epochs, "lists_per_step": 4, "seed": 7} | settings)
    train(task, loss, PretrainingFolder(tmp_path / "run"), settings, Accelerator(cpu=True), validate)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


DAMAGES = {
    "emptied": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "with a bit flipped": lambda file: file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1])),
    "removed": lambda file: file.unlink(),
    "an empty list": lambda file: file.write_text("[]"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["state.safetensors", "history.json", "checkpoint.json", "files.json"])
def test_any_damage_to_the_state_is_noticed(encoder, tmp_path, name, damage):
    trained(encoder, tmp_path, epochs=1)
    DAMAGES[damage](tmp_path / "run" / "state" / name)
    place = re.escape(str(tmp_path / "run" / "state"))
    with pytest.raises(
        UserError, match=rf"^{place}: cannot resume training \(.*{name}.*\); remove the folder to start"
    ):
        trained(encoder, tmp_path)


@pytest.mark.parametrize("damage", ["emptied", "with a bit flipped", "removed"])
def test_a_damaged_checkpoint_of_an_earlier_epoch_is_not_the_result(encoder, tmp_path, damage):
    trained(encoder, tmp_path, epochs=1)
    DAMAGES[damage](tmp_path / "run" / "checkpoint" / "weights")
    with pytest.raises(
        UserError, match=r"run: the best epoch's files have changed since they were written \(checkpoint/"
    ):
        trained(encoder, tmp_path)


def test_a_kill_between_the_checkpoint_and_the_state_changes_nothing(encoder, tmp_path, monkeypatch):
    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("rerank.training.saving.save_state", killed)
        with pytest.raises(KeyboardInterrupt):
            trained(encoder, tmp_path, epochs=1)
    (tmp_path / "run" / "log.jsonl").unlink(missing_ok=True)
    parts = trained(encoder, tmp_path)
    (tmp_path / "whole").mkdir()
    assert torch.equal(parts, trained(encoder, tmp_path / "whole"))


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "linear", "warmup_ratio": 0.4},
        {"schedule": "constant", "warmup_ratio": 0.8},
        {"weight_decay": 0.1},
        {"average": 0.9},
        {"schedule": "linear", "weight_decay": 0.1, "average": 0.9},
    ],
    ids=str,
)
def test_an_interrupted_training_ends_as_the_whole(encoder, tmp_path, monkeypatch, settings, in_background):
    """The weights and the whole state, with the optimizer's values and the average; no default training is the same."""
    monkeypatch.setattr(loop, "saves_in_background", lambda device: in_background)
    steps = []

    def interrupted(scores, labels, mask):
        steps.append(1)
        if len(steps) > 5:  # in the third epoch
            raise KeyboardInterrupt
        return smoothi(scores, labels, mask)

    settings |= {"epochs": 4, "lists_per_step": 2}
    with pytest.raises(KeyboardInterrupt):
        trained(encoder, tmp_path, loss=interrupted, **settings)
    assert len(json.loads((tmp_path / "run" / "state" / "history.json").read_text())) == 2
    parts = trained(encoder, tmp_path, **settings)
    for name in ("whole", "default"):
        (tmp_path / name).mkdir()
    assert torch.equal(parts, trained(encoder, tmp_path / "whole", **settings))
    states = [read_tensors(folder / "run" / "state") for folder in (tmp_path, tmp_path / "whole")]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert any(name.startswith("average.") for name in states[0]) == ("average" in settings)
    default = trained(encoder, tmp_path / "default", epochs=4, lists_per_step=2)
    assert torch.equal(parts, default) == (settings.keys() == {"average", "epochs", "lists_per_step"})


def test_the_log_is_written_again_from_the_state(encoder, tmp_path):
    trained(encoder, tmp_path, epochs=2)
    log = tmp_path / "run" / "log.jsonl"
    before = log.read_text()
    log.write_text("damaged")
    trained(encoder, tmp_path, epochs=2)
    assert log.read_text() == before
