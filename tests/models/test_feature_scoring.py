"""Scores, runs and losses of whole feature sets."""

from types import SimpleNamespace

import pytest
import torch

from rerank.batches.features import Vectors
from rerank.data.letor.layouts import open_fold
from rerank.losses import listnet, smoothi
from rerank.models import feature_scoring
from rerank.models.feature_mlp import FeatureMLP
from rerank.models.feature_scoring import run_of, score_features
from rerank.training import objective
from rerank.training.objective import mean_loss_of
from rerank.utils.errors import UserError
from tests.support.small_features import write_folds_of_features

PLAIN = SimpleNamespace(device=torch.device("cpu"), autocast=lambda: torch.autocast("cpu", enabled=False))


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letor")
    fold, store = open_fold(str(write_folds_of_features(folder / "set")), "2", 5, folder / "cache")
    return store.features.subset(fold.train)


def test_every_document_has_the_score_of_its_vector_in_the_run(features, monkeypatch):
    model = FeatureMLP(4, 8, seed=0).eval()
    whole = run_of(features.qrels(), score_features(model, features, PLAIN))
    monkeypatch.setattr(feature_scoring, "DOCUMENTS_PER_FORWARD", 7)  # slices that cut queries
    sliced = run_of(features.qrels(), score_features(model.train(), features, PLAIN))
    for query, query_id in enumerate(features.query_ids):
        rows = torch.from_numpy(features.features[features.starts[query] : features.stops[query]].copy())
        with torch.no_grad():
            expected = dict(zip(features.doc_ids(query), model.eval()(Vectors(rows)).tolist(), strict=True))
        assert whole[query_id] == pytest.approx(expected, abs=1e-5)
        assert sliced[query_id] == pytest.approx(expected, abs=1e-5)
    assert list(whole) == list(features.query_ids)


@pytest.mark.parametrize("loss", [smoothi, listnet])
def test_the_mean_loss_is_that_of_the_lists_one_by_one(features, monkeypatch, loss):
    monkeypatch.setattr(objective, "LISTS", 5)
    scores = torch.randn(int((features.stops - features.starts).sum()), generator=torch.Generator().manual_seed(0))
    one_by_one, done = [], 0
    for begin, end in zip(features.starts, features.stops, strict=True):
        of_query = scores[done : done + end - begin]
        labels = torch.from_numpy(features.labels[begin:end].copy()).float()
        one_by_one.append(float(loss(of_query[None], labels[None])))
        done += end - begin
    assert mean_loss_of(features, scores, loss) == pytest.approx(sum(one_by_one) / len(one_by_one), abs=1e-6)
    assert sum(one_by_one) > 0


def test_a_score_that_is_not_finite_names_query_and_document(features):
    class Broken(torch.nn.Module):
        def forward(self, inputs):
            scores = torch.zeros(len(inputs.features))
            scores[int(features.stops[0] - features.starts[0])] = torch.nan
            return scores

    where = f"query {features.query_ids[1]}, document {features.doc_ids(1)[0]}"
    with pytest.raises(UserError, match=f"{where}: the model's score is nan"):
        score_features(Broken(), features, PLAIN)
