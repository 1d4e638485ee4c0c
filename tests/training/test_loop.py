"""The training loop: exact accumulation, repeatability, resumption, early stopping, broken losses."""

import os

import pytest
import torch

from rerank.config import TrainingSettings
from rerank.losses import smoothi
from rerank.training import loop
from rerank.training.device import open_accelerator
from rerank.utils.errors import UserError
from tests.support.processes import in_two_processes
from tests.support.small_task import open_task, train_task, weights_of, without_times
from tests.support.small_world import make_lists

WORLD = make_lists(queries=8, documents=4)
LISTS = WORLD[2]


def trained(encoder, tmp_path, name="run", loss=smoothi, values=None, tokens=4096, **settings):
    """Trains on LISTS and returns the model, the history and the number of checkpoints; `values` are of validation."""
    task = open_task(encoder, tmp_path, WORLD, tokens=tokens)
    values = iter(values or range(100))
    settings = {"epochs": 2, "lists_per_step": 4, "patience": 50, "seed": 7} | settings
    history = train_task(task, tmp_path / name, lambda run: float(next(values)), loss, **settings)
    return task.model, history, task.saved


def test_eight_lists_in_one_step_have_the_gradient_of_one_batch_of_32_documents(encoder, tmp_path, monkeypatch):
    task = open_task(encoder, tmp_path, WORLD)
    model = task.model.eval()  # the comparison is of gradients, so without dropout
    batch = task.batch(LISTS)
    flat = model.pool(model(batch.inputs), batch.inputs.documents)
    smoothi(batch.grid(flat), batch.labels, batch.mask).mean().backward()
    expected = [parameter.grad for parameter in model.parameters()]
    task = open_task(encoder, tmp_path, WORLD)
    model = task.model.eval()
    model.train = lambda mode=True: model  # stays in evaluation mode
    seen = {}

    class Spy(torch.optim.Adam):
        def step(self, closure=None):
            seen.update({id(p): p.grad.clone() for group in self.param_groups for p in group["params"]})
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "Adam", Spy)
    train_task(task, tmp_path, lambda run: 0.0, epochs=1, lists_per_step=8)
    largest = max(gradient.abs().max() for gradient in expected)
    assert largest > 0
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(seen[id(parameter)], gradient, atol=1e-3 * float(largest), rtol=0)


def test_a_seed_repeats_a_run_bit_for_bit(encoder, tmp_path):
    first, history, _ = trained(encoder, tmp_path, "first")
    again, same, _ = trained(encoder, tmp_path, "again")
    other, _, _ = trained(encoder, tmp_path, "other", seed=8)
    assert torch.equal(weights_of(first), weights_of(again))
    assert without_times(history) == without_times(same)
    assert not torch.equal(weights_of(first), weights_of(other))  # dropout differs


def test_the_best_epoch_is_kept_and_training_stops_after_the_patience(encoder, tmp_path):
    _, history, kept = trained(encoder, tmp_path, values=[0.1, 0.3, 0.3, 0.2, 0.1, 0.9], epochs=6, patience=3)
    assert [record["valid"] for record in history] == [0.1, 0.3, 0.3, 0.2, 0.1]
    assert kept == 2


def test_it_learns_a_handful_of_queries_by_heart(encoder, tmp_path):
    _, history, _ = trained(encoder, tmp_path, epochs=25)
    assert history[-1]["ndcg"] > 0.95 > history[0]["ndcg"] + 0.1


def test_a_loss_below_0_is_explained_once(encoder, tmp_path, caplog):
    def above_one(scores, labels, mask):
        return smoothi(scores, labels, mask) - 2

    with caplog.at_level("INFO"):
        trained(encoder, tmp_path, "above", above_one, epochs=3)
        assert caplog.text.count("the loss is below 0: a metric loss is 1 - metric, and a smooth metric can") == 1
        caplog.clear()
        trained(encoder, tmp_path, "within")
    assert "below 0" not in caplog.text


def test_a_loss_that_is_not_finite_stops_with_the_step_and_the_lists(encoder, tmp_path):
    def broken(scores, labels, mask):
        return scores.sum(1) * torch.tensor([1.0, torch.nan, 1.0, 1.0])

    with pytest.raises(
        UserError, match=r"epoch 1, step 1: the loss is not finite on query q1 with documents d1-0, d1-1"
    ):
        trained(encoder, tmp_path, loss=broken)


def test_clipping_bounds_the_step(encoder, tmp_path):
    free, _, _ = trained(encoder, tmp_path, "free", epochs=1)
    clipped, _, _ = trained(encoder, tmp_path, "clipped", epochs=1, clip=1e-9)
    start = open_task(encoder, tmp_path, WORLD).model
    assert (weights_of(clipped) - weights_of(start)).norm() < (weights_of(free) - weights_of(start)).norm()


def gradients_and_messages(encoder, tmp_path, broken=False, lists_per_step=4):
    """Of each step, this process's own gradient, the gradient that the optimizer gets, and the messages sent for it."""
    steps, messages = [], []
    accumulate, send, step = loop.accumulate_gradient, torch.distributed.all_reduce, torch.optim.Adam.step

    def own(model, *arguments):
        stats = accumulate(model, *arguments)
        steps.append([[p.grad.clone() for p in model.parameters() if p.grad is not None]])
        messages.clear()
        return stats

    def sent(tensor, *arguments, **named):
        messages.append(tensor.numel())
        return send(tensor, *arguments, **named)

    def received(self, closure=None):
        every = [p.grad.clone() for group in self.param_groups for p in group["params"] if p.grad is not None]
        steps[-1] += [every, len(messages)]
        return step(self, closure)

    def sometimes_nan(scores, labels, mask):
        if torch.distributed.get_rank() == 1:
            return scores.sum(1) * torch.nan
        return smoothi(scores, labels, mask)

    loop.accumulate_gradient, torch.distributed.all_reduce, torch.optim.Adam.step = own, sent, received
    task = open_task(encoder, tmp_path / f"of{os.environ['RANK']}", WORLD)
    accelerator = open_accelerator(TrainingSettings(device="cpu"))
    settings = {"epochs": 1, "lists_per_step": lists_per_step, "seed": 7, "clip": 0}
    loss = sometimes_nan if broken else smoothi
    train_task(task, tmp_path / "run", lambda run: 0.0, loss, accelerator, **settings)
    return steps


def test_the_gradients_of_two_processes_are_summed_in_one_message_per_step(encoder, tmp_path):
    one, two = in_two_processes(tmp_path, gradients_and_messages, encoder, tmp_path)
    assert len(one) == len(two) == 2
    for (own, received, messages), (other, same, _) in zip(one, two, strict=True):
        assert messages == 1
        expected = sorted((a + b for a, b in zip(own, other, strict=True)), key=summary)
        for found in (received, same):
            assert all(torch.equal(a, b) for a, b in zip(sorted(found, key=summary), expected, strict=True))


def test_a_process_without_a_list_in_the_last_step_adds_zeros(encoder, tmp_path):
    one, two = in_two_processes(tmp_path, gradients_and_messages, encoder, tmp_path, False, 7)
    (own, received, _), (none, same, _) = one[1], two[1]
    assert len(own) == len(none)
    assert not any(gradient.any() for gradient in none)
    for found in (received, same):
        pairs = zip(sorted(found, key=summary), sorted(own, key=summary), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


def summary(gradient):
    """A key that puts gradients in the same order, whatever the order of the parameters."""
    return gradient.shape, gradient.flatten().tolist()


def test_a_loss_that_is_not_finite_in_one_process_stops_both(encoder, tmp_path):
    for error in in_two_processes(tmp_path, gradients_and_messages, encoder, tmp_path, True):
        assert isinstance(error, UserError)
        assert str(error).startswith("epoch 1, step 1: the loss is not finite on query q1 with documents d1-0, d1-1")
        assert "query q3" in str(error)
        assert "query q0" not in str(error)
