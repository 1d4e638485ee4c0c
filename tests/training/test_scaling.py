"""float16 on a CPU: the loss is scaled, steps that overflow are skipped, and a resumed run goes on with the scale."""

from functools import partial

import pytest
import torch
from accelerate import Accelerator

from rerank.config import TrainingSettings
from rerank.losses import smoothi
from rerank.models.checkpoints import open_cross_encoder
from rerank.runs.layout import PretrainingFolder
from rerank.training.loop import train
from rerank.utils.errors import UserError
from tests.support.small_task import ListsTask
from tests.support.small_world import WORDS, make_inputs, make_lists
from tests.support.tiny_encoders import make_encoder

QUERIES, TEXTS, LISTS = make_lists(queries=4, documents=4, longest=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_encoder("bert", tmp_path_factory.mktemp("bert"), WORDS, max_positions=48)


class Counted(torch.amp.GradScaler):
    """A scaler that keeps the scales of its steps."""

    def __init__(self, **settings):
        super().__init__("cpu", **settings)
        self.scales = []

    def update(self, new_scale=None):
        self.scales.append(self.get_scale())
        super().update(new_scale)


def trained(folder, tmp_path, name, scaler=None, half=False, loss=smoothi, tokens=4096, **settings):
    """Trains on LISTS in two steps an epoch; gives the weights, the history and the scaler."""
    model, tokenizer, max_length = open_cross_encoder(str(folder), "mean", 0)
    task = ListsTask(model, make_inputs(tmp_path / "tokens", tokenizer, max_length, QUERIES, TEXTS), LISTS, tokens)
    accelerator = Accelerator(cpu=True)
    accelerator.scaler = scaler
    if half:
        accelerator.autocast = partial(torch.autocast, "cpu", torch.float16)
    settings = TrainingSettings(**{"epochs": 2, "lists_per_step": 2, "patience": 50} | settings)
    history = train(task, loss, PretrainingFolder(tmp_path / name), settings, accelerator, lambda run: 0.0)
    return weights_of(model), history, scaler


def weights_of(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("clip", [0.0, 1e-3])
def test_a_scale_changes_no_bit_of_a_gradient_that_does_not_overflow(folder, tmp_path, clip):
    plain, history, _ = trained(folder, tmp_path, "plain", clip=clip)
    scaled, same, scaler = trained(folder, tmp_path, "scaled", Counted(init_scale=2.0**16), clip=clip)
    assert torch.equal(plain, scaled)
    assert [record["loss"] for record in history] == [record["loss"] for record in same]
    assert scaler.scales == [2.0**16] * 4
    assert [record.get("skipped") for record in (*history, *same)] == [None, None, 0, 0]


@pytest.mark.parametrize("tokens", [4096, 60])
def test_steps_that_overflow_are_skipped_until_the_scale_fits(folder, tmp_path, tokens):
    start = weights_of(open_cross_encoder(str(folder), "mean", 0)[0])
    weights, history, scaler = trained(folder, tmp_path, "one", Counted(init_scale=2.0**120), half=True, tokens=tokens)
    assert history[0]["skipped"] == 2
    assert scaler.scales[:3] == [2.0**120, 2.0**119, 2.0**118]
    assert torch.equal(weights, start)
    learned, history, _ = trained(folder, tmp_path, "two", Counted(init_scale=2.0**16), half=True, tokens=tokens)
    assert [record["skipped"] for record in history] == [0, 0]
    assert not torch.equal(learned, start)
    full, _, _ = trained(folder, tmp_path, "full", tokens=tokens)
    assert (learned - full).norm() < 0.5 * (full - start).norm()


def test_a_resumed_run_has_the_scale_of_the_uninterrupted_one(folder, tmp_path):
    make = partial(Counted, init_scale=2.0**31, growth_interval=3)  # float16 has values up to 2^16
    whole, history, scaler = trained(folder, tmp_path, "whole", make(), half=True, epochs=10)
    trained(folder, tmp_path, "parts", make(), half=True, epochs=7)
    resumed, same, again = trained(folder, tmp_path, "parts", make(), half=True, epochs=10)
    assert torch.equal(whole, resumed)
    assert [record["skipped"] for record in history] == [record["skipped"] for record in same]
    assert again.scales == scaler.scales[-6:]
    assert again.state_dict() == scaler.state_dict()
    assert 0 < sum(record["skipped"] for record in history) < 20
    assert scaler.scales[-1] < 2.0**31


def test_a_gradient_that_no_scale_makes_finite_is_one_clear_line(folder, tmp_path):
    def broken(scores, labels, mask):
        return (scores * 0).sqrt().sum(1)  # 0, with a derivative that is not a number

    with pytest.raises(UserError, match=r"not finite in float16, even if the loss is scaled by 0.0625; take"):
        trained(folder, tmp_path, "broken", Counted(init_scale=1.0), loss=broken, epochs=10)
