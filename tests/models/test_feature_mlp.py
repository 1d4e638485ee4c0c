"""The network of feature vectors: the paper's layers, batch norm over real documents, checkpoints, whole sets."""

import json
import random
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from rerank.data.letor.layouts import open_fold
from rerank.losses import listnet, smoothi
from rerank.models import feature_mlp
from rerank.models.feature_mlp import FeatureMLP, open_feature_mlp, save_feature_mlp, score_features
from rerank.training import objective
from rerank.training.objective import validation_value
from rerank.utils.errors import UserError
from tests.support.small_features import write_folds_of_features

X = torch.randn(37, 5, generator=torch.Generator().manual_seed(0)) * 3 + 7


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


@pytest.mark.parametrize("documents", [16, 128])
def test_scores_and_gradients_are_those_of_the_papers_layers(documents, monkeypatch):
    monkeypatch.setattr(feature_mlp, "CPU_DOCUMENTS", documents)
    model, x = trained().double().train(), X.double()
    wanted = torch.randn(37, generator=torch.Generator().manual_seed(3)).double()
    copies = [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]
    g0, b0, w, b, g1, b1, v, c = copies
    hidden = F.relu(normalised(x, g0, b0) @ w.T + b)
    scores, expected = model(x), (normalised(hidden, g1, b1) @ v.T + c)[:, 0]
    torch.testing.assert_close(scores, expected)
    (scores * wanted).sum().backward()
    (expected * wanted).sum().backward()
    for parameter, copy in zip(model.parameters(), copies, strict=True):
        torch.testing.assert_close(parameter.grad, copy.grad)


def test_autocast_leaves_scores_in_float32():
    model = trained().train()
    expected = model(X)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model(X), expected)
        inside = model.eval()(X)
    assert torch.equal(inside, model(X))


def test_in_evaluation_a_score_depends_on_its_document_alone(monkeypatch):
    monkeypatch.setattr(feature_mlp, "CPU_DOCUMENTS", 16)
    model = trained()
    with torch.no_grad():
        together = model(X)
        alone = torch.cat([model(row[None]) for row in X])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_running_statistics_are_those_of_the_documents():
    model = FeatureMLP(5, 16, seed=1)
    model(X)
    hidden = torch.relu(model.hidden_layer(normalised(X, 1, 0)))
    for norm, seen in ((model.input_norm, X), (model.hidden_norm, hidden)):
        torch.testing.assert_close(norm.running_mean, 0.1 * seen.mean(0))
        torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * seen.var(0))


def test_a_step_of_one_document_has_scores_and_leaves_the_statistics():
    model = trained()
    before = [buffer.clone() for buffer in model.buffers()]
    expected = model(X[:1])
    scores = model.train()(X[:1])
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


def test_log1p_keeps_the_sign_and_a_checkpoint_has_it(tmp_path):
    model, plain = FeatureMLP(5, 16, seed=1, transform="log1p"), FeatureMLP(5, 16, seed=1)
    changed = torch.where(X < 0, -(1 - X).log(), (1 + X).log())
    model(X)
    plain(changed)
    torch.testing.assert_close(model.eval()(X), plain.eval()(changed))
    save_feature_mlp(model, tmp_path / "checkpoint")
    assert torch.equal(open_feature_mlp(tmp_path / "checkpoint")(X), model(X))


FACTS = {"kind": "feature_mlp", "features": 5, "hidden": 16}


@pytest.mark.parametrize(
    "facts",
    [
        None,
        {"model_type": "bert"},
        FACTS | {"features": 6},
        FACTS | {"transform": "cube"},
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


PLAIN = SimpleNamespace(device=torch.device("cpu"), autocast=lambda: torch.autocast("cpu", enabled=False))


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letor")
    fold, store = open_fold(str(write_folds_of_features(folder / "set")), "2", 5, folder / "cache")
    return store.features.subset(fold.train)


def test_every_document_has_the_score_of_its_vector_in_the_run(features, monkeypatch):
    model = FeatureMLP(4, 8, seed=0).eval()
    whole = score_features(model, features, features.qrels(), PLAIN)
    monkeypatch.setattr(feature_mlp, "DOCUMENTS_PER_FORWARD", 7)  # slices that cut queries
    sliced = score_features(model.train(), features, features.qrels(), PLAIN)
    for query, query_id in enumerate(features.query_ids):
        rows = torch.from_numpy(features.features[features.starts[query] : features.stops[query]].copy())
        with torch.no_grad():
            expected = dict(zip(features.doc_ids(query), model.eval()(rows).tolist(), strict=True))
        assert whole[query_id] == pytest.approx(expected, abs=1e-5)
        assert sliced[query_id] == pytest.approx(expected, abs=1e-5)
    assert list(whole) == list(features.query_ids)


@pytest.mark.parametrize("loss", [smoothi, listnet])
def test_the_validation_loss_is_that_of_the_lists_one_by_one(features, monkeypatch, loss):
    monkeypatch.setattr(objective, "LISTS", 5)
    qrels = features.qrels()
    draw = random.Random(0)
    run = {query_id: {doc_id: draw.gauss(0, 1) for doc_id in grades} for query_id, grades in qrels.items()}
    one_by_one = [
        float(loss(torch.tensor([list(run[query_id].values())]), torch.tensor([list(grades.values())]).float()))
        for query_id, grades in qrels.items()
    ]
    expected = -sum(one_by_one) / len(one_by_one)
    assert validation_value(run, qrels, "loss", loss) == pytest.approx(expected, abs=1e-6)
    assert sum(one_by_one) > 0


def test_a_score_that_is_not_finite_names_query_and_document(features):
    class Broken(torch.nn.Module):
        def forward(self, inputs):
            scores = torch.zeros(len(inputs))
            scores[int(features.stops[0] - features.starts[0])] = torch.nan
            return scores

    where = f"query {features.query_ids[1]}, document {features.doc_ids(1)[0]}"
    with pytest.raises(UserError, match=f"{where}: the model's score is nan"):
        score_features(Broken(), features, features.qrels(), PLAIN)
