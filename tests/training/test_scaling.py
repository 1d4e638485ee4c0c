"""float16 on a CPU: the loss is scaled, steps that overflow are skipped, and a resumed run goes on with the scale."""

from functools import partial

import pytest
import torch
from accelerate import Accelerator

from rerank.losses import smoothi
from rerank.utils.errors import UserError
from tests.support.small_task import open_task, train_task, weights_of
from tests.support.small_world import make_lists

WORLD = make_lists(queries=4, documents=4, longest=30)


class Counted(torch.amp.GradScaler):
    """A scaler that keeps the scales of its steps."""

    def __init__(self, **settings):
        super().__init__("cpu", **settings)
        self.scales = []

    def update(self, new_scale=None):
        self.scales.append(self.get_scale())
        super().update(new_scale)


def trained(encoder, tmp_path, name, scaler=None, half=False, loss=smoothi, tokens=4096, **settings):
    """Trains on LISTS in two steps an epoch; gives the weights, the history and the scaler."""
    task = open_task(encoder, tmp_path, WORLD, tokens=tokens)
    accelerator = Accelerator(cpu=True)
    accelerator.scaler = scaler
    if half:
        accelerator.autocast = partial(torch.autocast, "cpu", torch.float16)
    settings = {"epochs": 2, "lists_per_step": 2, "patience": 50} | settings
    history = train_task(task, tmp_path / name, lambda run: 0.0, loss, accelerator, **settings)
    return weights_of(task.model), history, scaler


def test_a_scale_changes_no_bit_of_a_gradient_that_does_not_overflow(encoder, tmp_path):
    plain, history, _ = trained(encoder, tmp_path, "plain", clip=1e-3)
    scaled, same, scaler = trained(encoder, tmp_path, "scaled", Counted(init_scale=2.0**16), clip=1e-3)
    assert torch.equal(plain, scaled)
    assert [record["loss"] for record in history] == [record["loss"] for record in same]
    assert scaler.scales == [2.0**16] * 4
    assert [record.get("skipped") for record in (*history, *same)] == [None, None, 0, 0]


def test_steps_that_overflow_are_skipped_until_the_scale_fits(encoder, tmp_path):
    tokens = 60  # a list is scored in several passes
    start = weights_of(open_task(encoder, tmp_path, WORLD).model)
    weights, history, scaler = trained(encoder, tmp_path, "one", Counted(init_scale=2.0**120), half=True, tokens=tokens)
    assert history[0]["skipped"] == 2
    assert scaler.scales[:3] == [2.0**120, 2.0**119, 2.0**118]
    assert torch.equal(weights, start)
    learned, history, _ = trained(encoder, tmp_path, "two", Counted(init_scale=2.0**16), half=True, tokens=tokens)
    assert [record["skipped"] for record in history] == [0, 0]
    assert not torch.equal(learned, start)
    full, _, _ = trained(encoder, tmp_path, "full", tokens=tokens)
    assert (learned - full).norm() < 0.5 * (full - start).norm()


def test_a_resumed_run_has_the_scale_of_the_uninterrupted_one(encoder, tmp_path):
    make = partial(Counted, init_scale=2.0**31, growth_interval=3)  # float16 has values up to 2^16
    whole, history, scaler = trained(encoder, tmp_path, "whole", make(), half=True, epochs=8)
    trained(encoder, tmp_path, "parts", make(), half=True, epochs=6)
    resumed, same, again = trained(encoder, tmp_path, "parts", make(), half=True, epochs=8)
    assert torch.equal(whole, resumed)
    assert [record["skipped"] for record in history] == [record["skipped"] for record in same]
    assert again.scales == scaler.scales[-4:]
    assert again.state_dict() == scaler.state_dict()
    assert 0 < sum(record["skipped"] for record in history) < 16
    assert scaler.scales[-1] < 2.0**31


def test_a_gradient_that_no_scale_makes_finite_is_one_clear_line(encoder, tmp_path):
    def broken(scores, labels, mask):
        return (scores * 0).sqrt().sum(1)  # 0, with a derivative that is not a number

    with pytest.raises(UserError, match=r"not finite in float16, even if the loss is scaled by 0.0625; take"):
        trained(encoder, tmp_path, "broken", Counted(init_scale=1.0), loss=broken, epochs=10)
