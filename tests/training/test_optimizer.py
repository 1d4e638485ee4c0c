"""Schedules of the learning rates, and weight decay: of which parameters, in any number of groups."""

import pytest
import torch
from torch import nn

from rerank.config import TrainingSettings
from rerank.training.steps import learning_rate_factor, make_optimizer
from tests.support.small_task import ListsTask, open_task, train_task
from tests.support.small_world import make_lists

WORLD = make_lists(queries=6, documents=3)


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 0, [1, 1, 1, 1, 1]),
        ("constant", 0.4, [0.5, 1, 1, 1, 1]),
        ("constant", 1, [0.2, 0.4, 0.6, 0.8, 1]),
        ("linear", 0, [1, 0.8, 0.6, 0.4, 0.2]),
        ("linear", 0.4, [0.5, 1, 1, 2 / 3, 1 / 3]),
        ("linear", 0.5, [0.4, 0.8, 1, 0.8, 0.4]),
        ("linear", 1, [0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_the_factor_rises_over_the_warm_up_and_falls_to_0_after_the_last_step(schedule, warmup, expected):
    settings = TrainingSettings(schedule=schedule, warmup_ratio=warmup)
    assert [learning_rate_factor(settings, done, 5) for done in range(5)] == pytest.approx(expected)


class Everything(nn.Module):
    """Parameters of all kinds."""

    def __init__(self):
        super().__init__()
        self.table, self.layer, self.norm = nn.Embedding(3, 2), nn.Linear(2, 2), nn.LayerNorm(2)
        self.batch_norm, self.scale, self.weight_of_one = (
            nn.BatchNorm1d(2), nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.tensor([2.0])),
        )  # fmt: skip


def test_matrices_are_decayed_by_their_group_s_learning_rate_and_nothing_else_is():
    model = Everything()
    nn.init.ones_(model.layer.bias)
    groups = [
        {"params": [*model.table.parameters(), *model.norm.parameters()], "lr": 0.1},
        {"params": [*model.layer.parameters(), *model.batch_norm.parameters()], "lr": 0.5},
        {"params": [model.scale, model.weight_of_one], "lr": 1.0},
    ]
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    make_optimizer(groups, 0.2).step()
    factors = dict.fromkeys(before, 1.0) | {"table.weight": 1 - 0.1 * 0.2, "layer.weight": 1 - 0.5 * 0.2}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach(), factors[name] * before[name])


def test_without_decay_the_optimizer_is_adam_with_the_groups_as_they_are():
    model = Everything()
    optimizer = make_optimizer([{"params": list(model.parameters()), "lr": 0.1}], 0.0)
    assert type(optimizer) is torch.optim.Adam
    (group,) = optimizer.param_groups
    assert (len(group["params"]), group["weight_decay"]) == (len(list(model.parameters())), 0)


class ThreeGroups(ListsTask):
    """The groups of a cross-encoder, and one more."""

    def parameter_groups(self):
        extra = nn.Parameter(torch.tensor(0.0))
        return [*super().parameter_groups(), {"params": [extra], "lr": 1.0}]


def rates_of_steps(encoder, tmp_path, monkeypatch, make_task=ListsTask, **settings):
    """The learning rates of the groups at each step of a training of three epochs of two steps."""
    seen = []

    class Spy(torch.optim.Adam):
        def step(self, closure=None):
            seen.append([group["lr"] for group in self.param_groups])
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "Adam", Spy)
    task = open_task(encoder, tmp_path, WORLD, make_task)
    train_task(task, tmp_path / "run", lambda run: 0.0, epochs=3, lists_per_step=4, **settings)
    return seen


def test_all_groups_follow_the_schedule_over_epochs_and_steps(encoder, tmp_path, monkeypatch):
    seen = rates_of_steps(encoder, tmp_path, monkeypatch, ThreeGroups, schedule="linear", warmup_ratio=1 / 3)
    factors = [0.5, 1, 1, 0.75, 0.5, 0.25]
    assert seen == [pytest.approx([1e-3 * factor, 1e-2 * factor, factor]) for factor in factors]
