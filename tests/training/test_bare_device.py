"""What a step and a scoring pass ask of a device that has no float64, such as an Apple GPU.

The device is torch's `meta` device: its tensors have shapes and types but no values, and a copy to the CPU gives zeros.
A whole step or scoring pass runs on it, so a test sees which operations and types a GPU would be asked for.
"""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rerank.batches.batch import make_batch
from rerank.losses import LOSSES, hinge
from rerank.models.checkpoints import open_cross_encoder
from rerank.models.memory import TokenBudget
from rerank.models.scoring import start_passages
from rerank.training.gradients import accumulate_gradient
from tests.support.small_world import WORDS, make_inputs, make_lists
from tests.support.tiny_encoders import make_encoder

QUERIES, TEXTS, LISTS = make_lists(queries=2, documents=3, longest=60)
DEVICE = torch.device("meta")
BARE = SimpleNamespace(device=DEVICE, autocast=contextlib.nullcontext)
UNMEASURED = {"ot", "distill_kl", "margin_mse"}
"""A transport plan of equal scores is not what the test is about; the others take a teacher's scores."""


class BareDevice(TorchDispatchMode):
    """What is asked of DEVICE.

    operations: the operations that make new tensors.
    doubles: the operations that make float64 values.
    waits: the times that the host waits for a value; reading a number gives `item`.
    """

    def __init__(self, item: int) -> None:
        super().__init__()
        self.item = item
        self.operations: set[str] = set()
        self.doubles: set[str] = set()
        self.waits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.name()
        from_device = any(x.device == DEVICE for x in _tensors((args, kwargs)))
        if from_device and name == "aten::_local_scalar_dense":
            self.waits += 1
            return self.item
        if from_device and name == "aten::_to_copy" and torch.device(kwargs.get("device") or DEVICE).type == "cpu":
            self.waits += 1
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        out = func(*args, **kwargs)
        made = [x for x in _tensors(out) if x.device == DEVICE]
        is_copy_to_device = name == "aten::_to_copy" and not from_device
        if made and not is_copy_to_device and not func.is_view:
            self.operations.add(name)
        if any(x.dtype == torch.float64 for x in made):
            self.doubles.add(name)
        return out


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (x for x in tree_leaves(tree) if isinstance(x, torch.Tensor))


def open_world(kind, tmp_path, monkeypatch):
    """A model on the device, and a batch whose numbers are on the CPU. The device has no autocast to switch off."""
    monkeypatch.setattr(torch, "autocast", lambda device, **settings: contextlib.nullcontext())
    folder = make_encoder(kind, tmp_path / kind, WORDS, max_positions=48)
    model = open_cross_encoder(str(folder), "mean", 0)
    batch = make_batch(LISTS, make_inputs(tmp_path / "tokens", model.tokenizer, model.max_length, QUERIES, TEXTS))
    return model.to(DEVICE).train(), batch


@pytest.mark.parametrize("kind", ["bert", "modernbert", "deberta-v2"])
def test_a_step_and_a_scoring_pass_have_no_float64(kind, tmp_path, monkeypatch):
    model, batch = open_world(kind, tmp_path, monkeypatch)
    with BareDevice(item=5) as device:
        stats = accumulate_gradient(model, batch, hinge, 1 / 2, BARE, TokenBudget(200))
    assert len(device.operations) > 30
    assert stats.shape == (2, 2)
    assert all(parameter.grad.device == DEVICE for parameter in model.parameters() if parameter.grad is not None)
    inputs = batch.inputs
    with torch.no_grad(), device:
        scores = start_passages(model.eval(), inputs, DEVICE, contextlib.nullcontext, TokenBudget(200))()
    assert scores.device.type == "cpu"
    assert (len(scores), scores.dtype) == (len(inputs.lengths()), torch.float32)
    assert not device.doubles


def test_a_step_and_a_scoring_pass_wait_once(tmp_path, monkeypatch):
    model, batch = open_world("bert", tmp_path, monkeypatch)
    with BareDevice(item=5) as step:
        accumulate_gradient(model, batch, hinge, 1 / 2, BARE, TokenBudget(10**6))
    with torch.no_grad(), BareDevice(item=5) as scoring:
        start_passages(model.eval(), batch.inputs, DEVICE, contextlib.nullcontext, TokenBudget(10**6))()
    assert step.waits == scoring.waits == 1


def test_no_loss_makes_float64_on_the_device(tmp_path, monkeypatch):
    model, batch = open_world("bert", tmp_path, monkeypatch)
    for name in LOSSES:
        if name not in UNMEASURED:
            with BareDevice(item=5) as device:
                accumulate_gradient(model, batch, LOSSES[name], 1 / 2, BARE, TokenBudget(10**6))
            assert not device.doubles, name


def test_a_double_on_the_device_is_found():
    with BareDevice(item=0) as device:
        nn.Linear(2, 2, device=DEVICE)(torch.zeros(1, 2, device=DEVICE)).double()
    assert device.doubles == {"aten::_to_copy"}
