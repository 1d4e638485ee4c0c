"""A bias that moves all scores alike is not trained by a loss that it does not change: it would learn from rounding."""

import pytest
import torch
from safetensors.torch import load_file

from rerank.cli.main import main
from rerank.losses import LOSSES, create
from rerank.losses.shifts import changes_with_a_shift
from tests.support.small_collection import command


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_a_loss_changes_with_a_shift_if_the_sum_of_its_gradient_is_not_0(loss):
    torch.manual_seed(0)
    scores = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    create(loss)(scores, torch.randint(0, 3, (4, 6))).sum().backward()
    assert (scores.grad.sum().abs() > 1e-4) == changes_with_a_shift(create(loss))


@pytest.mark.parametrize(
    ("settings", "learns"),
    [(("smoothi",), False), (("listap",), True), (("smoothi", "--encoder.pooling", "sum"), True)],
    ids=["no difference", "another loss", "a pooling that counts passages"],
)
def test_text(here, settings, learns):
    main(command("--fold", "1", "--epochs", "1", "--name", "own", "--loss", *settings))
    weights = load_file("runs/towns/own/fold1/checkpoint/model.safetensors")
    assert (weights["classifier.bias"].item() != 0) == learns


@pytest.mark.parametrize(("loss", "learns"), [("smoothi", False), ("listap", True)])
def test_feature_vectors(letor, loss, learns):
    main(["train", "--config", "letor.toml", "--fold", "1", "--loss", loss])
    weights = load_file(f"runs/letor/{loss}/fold1/checkpoint/model.safetensors")
    assert weights["hidden_norm.bias"].any() == learns
