"""Each loss trains a feature network, and a cross-encoder through `rerank.training.loop`, as `--loss NAME` would."""

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from rerank.config import LossSettings, TrainingSettings
from rerank.losses import LABELS, LOSSES, exact_metric
from rerank.models.checkpoints import open_cross_encoder
from rerank.runs.layout import PretrainingFolder
from rerank.training.loop import train
from rerank.training.losses import open_loss
from tests.support.small_task import ListsTask
from tests.support.small_world import WORDS, make_inputs, make_lists
from tests.support.tiny_encoders import make_encoder

# What differs from the defaults: the scores of a fresh network are close to 0 and each other, and ListAP's bins have
# a range.
SETTINGS = {
    "smoothi": {"alpha": 10.0},
    "fastsort": {"strength": 0.1},
    "listap": {"bins": 5, "low": -3.0, "high": 3.0},
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_feature_network_learns_to_rank(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(32, 10, 8, generator=generator)
    utilities = features @ torch.randn(8, generator=generator)
    labels = utilities.argsort(dim=1).argsort(dim=1).sub(5).clamp_min(0)  # half of a list is 0, the best is 4
    if name == "listap":
        labels = labels.clamp_max(1)
    wanted = labels if LABELS[name] == "judgments" else 3 * utilities - 5  # a teacher's scores
    mask = torch.arange(10) < torch.arange(6, 38)[:, None].clamp_max(10)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    loss = open_loss(LossSettings(name, SETTINGS.get(name, {})))
    before = exact_metric(network(features).squeeze(2), labels, mask).mean()
    assert before < 0.75
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        loss(network(features).squeeze(2), wanted, mask).mean().backward()
        optimizer.step()
    assert exact_metric(network(features).squeeze(2), labels, mask).mean() > 0.9


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return make_encoder("bert", tmp_path_factory.mktemp("bert"), WORDS, max_positions=48)


@pytest.mark.parametrize("name", LOSSES)
def test_two_steps_move_all_of_a_cross_encoder(name: str, encoder, tmp_path) -> None:
    queries, texts, lists = make_lists(queries=4, documents=4, longest=20)
    model, tokenizer, max_length = open_cross_encoder(str(encoder), "mean", 0)
    inputs_of = make_inputs(tmp_path / "tokens", tokenizer, max_length, queries, texts)
    before = {key: value.detach().clone() for key, value in model.named_parameters()}
    loss = open_loss(LossSettings(name))
    task, folder = ListsTask(model, inputs_of, lists), PretrainingFolder(tmp_path / "run")
    settings = TrainingSettings(epochs=1, lists_per_step=2)
    history = train(task, loss, folder, settings, Accelerator(cpu=True), lambda run: 0.0)
    assert len(history) == 1
    for key, value in model.named_parameters():
        assert value.isfinite().all()
        # No loss sees what is added to all scores of a list, nor attention what is added to all keys.
        assert key.endswith(("head.bias", "key.bias")) or not torch.equal(value, before[key]), key
