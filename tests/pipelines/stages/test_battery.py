"""What every kind of stage must do: open what it saved, learn from no test judgment, rank one query as among others."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from rerank.data.trec import ranked
from rerank.pipelines.stages.base import below, stage_kinds
from rerank.pipelines.stages.tables import stage_of, table_of
from rerank.utils.errors import UserError
from tests.pipelines.stages.worlds import FOLD, STAGES, TESTED, Judged, fitted, open_world, ranked_by


def test_every_registered_kind_is_in_the_battery():
    assert set(stage_kinds()) == set(STAGES)


@pytest.mark.parametrize("kind", STAGES)
def test_a_stage_ranks_the_same_once_it_was_saved_and_opened_again(kind, world, tmp_path):
    ranker = fitted(world, kind, tmp_path / "fit")
    run = ranked_by(ranker, world, kind)
    (tmp_path / "saved").mkdir()
    ranker.save(tmp_path / "saved")
    assert list(run) == list(TESTED)
    assert ranked_by(STAGES[kind].open(open_world(), tmp_path / "saved"), world, kind) == run


@pytest.mark.parametrize("kind", STAGES)
def test_no_judgment_of_another_query_than_the_folds_is_used(kind, world, tmp_path):
    qrels = dict(world.collection.qrels)
    turned = qrels | {q: {d: 1 - grade for d, grade in qrels[q].items()} for q in TESTED}
    other = world.changed(collection=Judged(world.collection, turned))
    runs = [ranked_by(fitted(one, kind, tmp_path / str(n)), one, kind) for n, one in enumerate((world, other))]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("kind", STAGES)
def test_a_query_alone_has_the_ranking_that_it_has_among_others(kind, world, tmp_path):
    ranker = fitted(world, kind, tmp_path / "fit")
    together = ranked_by(ranker, world, kind)
    for query_id in TESTED:
        alone = ranked_by(ranker, world, kind, [query_id])[query_id]
        assert ranked(alone) == ranked(together[query_id])
        scores = list(together[query_id].values())
        rounding = 1e-5 * np.abs(scores).max()
        np.testing.assert_allclose([alone[d] for d in together[query_id]], scores, rtol=0, atol=rounding)


@pytest.mark.parametrize("kind", [kind for kind in STAGES if kind != "run"])
def test_a_query_without_text_or_candidates_is_left_out(kind, here, tmp_path):
    ranker = fitted(world := open_world(), kind, tmp_path / "fit")
    runs = [{} for _ in range(len(below(STAGES[kind])))]
    assert not ranker.rank({"empty": "  "}, runs).get("empty")
    assert not ranked_by(ranker, world, kind, []).keys()


@pytest.mark.parametrize("kind", STAGES)
def test_the_settings_are_read_back_from_their_table(kind):
    assert stage_of(table_of(STAGES[kind]), "here") == STAGES[kind]


def test_what_a_stage_needs_and_does_not_have_is_one_line(world, tmp_path):
    with pytest.raises(UserError, match=r"bm25\.run: has no query new: .* ranks only the queries of its file"):
        STAGES["run"].fit(world, FOLD, [], tmp_path).rank({"new": "a query"}, [])
    with pytest.raises(UserError, match=r"adapter\.safetensors: not the matrix of a query adapter"):
        STAGES["query-adapter"].open(world, tmp_path)
    save_file({"change": torch.eye(2).long(), "scale": torch.ones(1)}, tmp_path / "adapter.safetensors")
    with pytest.raises(UserError, match=r"expected a square matrix in float32, got \(2, 2\) in torch.int64; fit the"):
        STAGES["query-adapter"].open(world, tmp_path)
