"""The average of the weights: what is validated and kept; training goes on from the weights themselves."""

import pytest
import torch

from rerank.training.average import AveragedWeights
from rerank.utils.errors import UserError
from tests.support.small_task import ListsTask, open_task, train_task, weights_of
from tests.support.small_world import make_lists

WORLD = make_lists(queries=4, documents=3)


class WatchedTask(ListsTask):
    """Keeps the weights with which it scores, and those that it saves."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.scored, self.kept = [], []

    def score(self, part):
        self.scored.append(weights_of(self.model))
        return super().score(part)

    def save(self, folder):
        super().save(folder)
        self.kept.append(weights_of(self.model))


def trained(encoder, folder, average, **settings):
    """Trains in `folder`; gives the task and the weights after each step."""
    task = open_task(encoder, folder, WORLD, WatchedTask)
    steps = [weights_of(task.model)]

    class Spy(torch.optim.Adam):
        def step(self, closure=None):
            super().step(closure)
            steps.append(weights_of(task.model))

    settings = {"epochs": 3, "lists_per_step": 2, "average": average} | settings
    values = iter(range(10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "Adam", Spy)
        train_task(task, folder, lambda run: float(next(values)), **settings)
    return task, steps


def test_the_average_is_validated_and_kept_and_training_does_not_change(encoder, tmp_path):
    plain, steps = trained(encoder, tmp_path / "plain", 0.0)
    averaged, same = trained(encoder, tmp_path / "averaged", 0.3)
    assert len(steps) == 7
    assert all(torch.equal(first, second) for first, second in zip(steps, same, strict=True))
    assert torch.equal(weights_of(averaged.model), steps[-1])
    value, expected = steps[0], []
    for number, weights in enumerate(steps[1:], 1):
        decay = min(0.3, number / (number + 9))  # 1/10, 2/11, 3/12, 0.3, …
        value = decay * value + (1 - decay) * weights
        expected += [value] if number % 2 == 0 else []
    for found in (averaged.scored, averaged.kept):
        torch.testing.assert_close(torch.stack(found), torch.stack(expected), atol=1e-6, rtol=0)
        assert not any(torch.equal(one, two) for one, two in zip(found, plain.scored, strict=True))
    assert all(torch.equal(one, two) for one, two in zip(plain.scored, steps[2::2], strict=True))


def test_running_statistics_are_averaged_and_integers_and_frozen_weights_are_not():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    model[1].bias.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    average = AveragedWeights(model, 0.5)
    assert set(average.state_dict()) == {"0.weight", "0.bias", "0.running_mean", "0.running_var", "1.weight"}
    with torch.no_grad():
        for value in model.state_dict().values():
            value.add_(1)
    after = {name: value.clone() for name, value in model.state_dict().items()}
    average.update(100)
    with average.applied():
        for name, value in model.state_dict().items():
            constant = name in ("0.num_batches_tracked", "1.bias")
            torch.testing.assert_close(value, after[name] if constant else before[name] + 0.5)
    assert all(torch.equal(value, after[name]) for name, value in model.state_dict().items())


def test_an_error_within_the_block_leaves_the_model_s_own_weights():
    model = torch.nn.Linear(2, 1)
    average = AveragedWeights(model, 0.5)
    torch.nn.init.ones_(model.weight)
    with pytest.raises(KeyboardInterrupt), average.applied():
        raise KeyboardInterrupt
    assert torch.equal(model.weight, torch.ones(1, 2))


def test_a_state_without_the_average_is_refused(encoder, tmp_path):
    trained(encoder, tmp_path, 0.0, epochs=1)
    with pytest.raises(UserError, match=r"state: cannot resume training \(it has 0 averaged weights, expected \d+\)"):
        trained(encoder, tmp_path, 0.5)
    again, _ = trained(encoder, tmp_path, 0.0)
    assert len(again.scored) == 2
