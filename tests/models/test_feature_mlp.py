"""The network of feature vectors: the paper's layers, batch norm over real documents, checkpoints."""

import json

import pytest
import torch
import torch.nn.functional as F

from rerank.batches.features import Vectors
from rerank.models import batchnorm_head
from rerank.models.dropout import token_keys
from rerank.models.feature_mlp import FeatureMLP, open_feature_mlp, save_feature_mlp
from rerank.models.feature_transforms import log1p, quantile_ranks
from rerank.utils.errors import UserError

X = Vectors(torch.randn(37, 5, generator=torch.Generator().manual_seed(0)) * 3 + 7)


def trained():
    """A model with running statistics and affine parameters that are not those of a new one."""
    model = FeatureMLP(5, 16, seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    for _ in range(3):
        model(X)
    return model.eval()


def normalised(x, weight, bias):
    return (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt() * weight + bias


def by_hand(weights, x, kept):
    """The scores of the paper's network in training, from the definition; `kept` are factors of the hidden values."""
    w = dict(zip(("g0", "b0", "W", "b", "g1", "b1", "V", "c"), weights, strict=True))
    hidden = F.relu(normalised(x, w["g0"], w["b0"]) @ w["W"].T + w["b"])
    return (normalised(hidden, w["g1"], w["b1"]) * kept @ w["V"].T + w["c"])[:, 0]


def assert_as_by_hand(model, inputs, kept):
    """Scores and gradients in training; returns the scores."""
    wanted = torch.randn(37, generator=torch.Generator().manual_seed(3)).double()
    copies = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    scores, expected = model(inputs), by_hand(copies, inputs.features, kept)
    torch.testing.assert_close(scores, expected)
    (scores * wanted).sum().backward()
    (expected * wanted).sum().backward()
    for parameter, copy in zip(model.parameters(), copies, strict=True):
        torch.testing.assert_close(parameter.grad, copy.grad)
    return scores


@pytest.mark.parametrize("documents", [16, 128])
def test_scores_and_gradients_are_those_of_the_papers_layers(documents, monkeypatch):
    monkeypatch.setattr(batchnorm_head, "CPU_DOCUMENTS", documents)
    assert_as_by_hand(trained().double().train(), Vectors(X.features.double()), 1)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_autocast_leaves_scores_in_float32(dropout):
    model, seeded = trained().train(), X.seeded(torch.arange(37))
    model.dropout.p = dropout
    expected = model(seeded)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model(seeded), expected)
        inside = model.eval()(X)
    assert torch.equal(inside, model(X))


def test_in_evaluation_a_score_depends_on_its_document_alone(monkeypatch):
    monkeypatch.setattr(batchnorm_head, "CPU_DOCUMENTS", 16)
    model = trained()
    with torch.no_grad():
        together = model(X)
        alone = torch.cat([model(Vectors(row[None])) for row in X.features])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_running_statistics_are_those_of_the_documents(dropout):
    model = FeatureMLP(5, 16, seed=1, dropout=dropout)
    model(X.seeded(torch.arange(37)))
    hidden = torch.relu(model.hidden_layer(normalised(X.features, 1, 0)))
    for norm, seen in ((model.input_norm, X.features), (model.hidden_norm, hidden)):
        torch.testing.assert_close(norm.running_mean, 0.1 * seen.mean(0))
        torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * seen.var(0))


def test_a_step_of_one_document_has_scores_and_leaves_the_statistics():
    model = trained()
    before = [buffer.clone() for buffer in model.buffers()]
    expected = model(Vectors(X.features[:1]))
    scores = model.train()(Vectors(X.features[:1]))
    assert model.training
    torch.testing.assert_close(scores, expected)
    assert all(torch.equal(buffer, old) for buffer, old in zip(model.buffers(), before, strict=True))


def test_the_seed_decides_the_weights_and_leaves_torchs_generator():
    state = torch.get_rng_state()
    first, again, other = (FeatureMLP(5, 16, seed).hidden_layer.weight for seed in (4, 4, 5))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_checkpoint_gives_the_same_scores(tmp_path):
    model = trained()
    save_feature_mlp(model, tmp_path / "checkpoint")
    facts = json.loads((tmp_path / "checkpoint" / "config.json").read_text())
    assert facts == {"kind": "feature_mlp", "features": 5, "hidden": 16}
    assert torch.equal(open_feature_mlp(tmp_path / "checkpoint")(X), model(X))


@pytest.mark.parametrize("transform", ["log1p", "quantile"])
def test_a_checkpoint_has_the_transform_of_its_features(tmp_path, transform):
    quantiles = X.features.sort(dim=0).values.T.contiguous() if transform == "quantile" else None
    model = FeatureMLP(5, 16, seed=1, transform=transform, quantiles=quantiles)
    model(X)
    changed = log1p(X.features) if transform == "log1p" else quantile_ranks(X.features, quantiles)
    plain = FeatureMLP(5, 16, seed=1)
    plain(Vectors(changed))
    assert torch.equal(model.eval()(X), plain.eval()(Vectors(changed)))
    save_feature_mlp(model, tmp_path / "checkpoint")
    opened = open_feature_mlp(tmp_path / "checkpoint")
    assert torch.equal(opened(X), model(X))
    assert not torch.equal(plain(X), model(X))


def test_dropout_drops_hidden_values_of_each_document_by_its_seed(monkeypatch):
    monkeypatch.setattr(batchnorm_head, "CPU_DOCUMENTS", 16)
    model = trained().double().train()
    seeds = torch.arange(37) * 7919 + 5
    model.dropout.p = 0.5
    x = Vectors(X.features.double(), seeds)
    model.dropout.keys.tokens = model.dropout.keys.firsts = token_keys(seeds, torch.zeros(37, dtype=torch.int64))
    kept = model.dropout(torch.ones(37, 16).double())  # 0 or 2
    assert 0.3 < (kept == 0).double().mean() < 0.7
    scores = assert_as_by_hand(model, x, kept)
    assert torch.equal(model(x), scores)
    assert not torch.equal(model(Vectors(x.features, seeds + 1)), scores)
    model.eval()
    undropped = model(x)
    model.dropout.p = 0.0
    assert torch.equal(model(x), undropped)


def test_dropout_without_seeds_and_missing_quantiles_are_refused():
    with pytest.raises(ValueError, match="expected the seeds of the documents"):
        FeatureMLP(5, 16, seed=1, dropout=0.5)(X)
    for quantiles in (None, torch.zeros(4, 9)):
        with pytest.raises(ValueError, match="expected the quantiles of 5 features"):
            FeatureMLP(5, 16, seed=1, transform="quantile", quantiles=quantiles)


FACTS = {"kind": "feature_mlp", "features": 5, "hidden": 16}


@pytest.mark.parametrize(
    "facts",
    [
        None,
        {"model_type": "bert"},
        FACTS | {"features": 6},
        *(FACTS | {"transform": name} for name in ("cube", "quantile")),
    ],
)
def test_what_is_no_checkpoint_is_one_line(tmp_path, facts):
    folder = tmp_path / "checkpoint"
    save_feature_mlp(trained(), folder)
    if facts is None:
        (folder / "model.safetensors").write_bytes(b"?")
    else:
        (folder / "config.json").write_text(json.dumps(facts))
    for place in (folder, tmp_path / "none"):
        with pytest.raises(
            UserError, match=r"(checkpoint|none): not a checkpoint of a model of feature vectors: ."
        ) as caught:
            open_feature_mlp(place)
        assert "\n" not in str(caught.value)
