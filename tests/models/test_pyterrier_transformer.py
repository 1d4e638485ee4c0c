"""The PyTerrier transformer: in a pipeline, in an experiment, and by itself."""

import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import AP, nDCG

from rerank import Reranker
from rerank.utils.errors import UserError
from tests.support.small_world import WORDS, make_texts
from tests.support.tiny_encoders import make_cross_encoder

QUERIES = {"q1": "amber birch", "q2": "fjord"}
TEXTS = make_texts({"d1": 5, "d2": 60, "d3": 12, "d4": 0})


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    folder = make_cross_encoder("bert", tmp_path_factory.mktemp("pyterrier") / "bert", WORDS, max_positions=24)
    return Reranker.load(folder, device="cpu")


@pytest.fixture
def results():
    """What a first stage returns, with the texts: the documents in the order of their ids."""
    rows = [
        {"qid": qid, "query": query, "docno": docno, "text": TEXTS[docno], "score": 9.0 - rank, "rank": rank}
        for qid, query in QUERIES.items()
        for rank, docno in enumerate(TEXTS)
    ]
    return pd.DataFrame(rows)


def test_it_gives_each_row_the_score_of_its_pair(reranker, results):
    reranked = (pt.Transformer.from_df(results) >> reranker.transformer())(results[["qid", "query"]].drop_duplicates())
    assert len(reranked) == len(results)
    for qid, query in QUERIES.items():
        rows = reranked[reranked.qid == qid].sort_values("rank")
        expected = reranker.rank(query, list(TEXTS.values()))
        assert list(rows.docno) == [list(TEXTS)[ranked.index] for ranked in expected]
        assert list(rows.score) == pytest.approx([ranked.score for ranked in expected], abs=1e-5)
        assert list(rows["rank"]) == [0, 1, 2, 3]


def test_it_works_in_an_experiment_and_with_a_cutoff(reranker, results):
    bm25 = pt.Transformer.from_df(results)
    best = reranker.rank("fjord", list(TEXTS.values()))[0].index
    qrels = pd.DataFrame([{"qid": "q2", "docno": list(TEXTS)[best], "label": 1}])
    topics = pd.DataFrame([{"qid": "q2", "query": "fjord"}])
    table = pt.Experiment([bm25, bm25 >> reranker.transformer() % 2], topics, qrels, [AP, nDCG @ 10], plan="tree")
    assert table["AP"].tolist() == pytest.approx([1 / (best + 1), 1.0])
    assert best > 0


def test_rows_keep_their_order_and_their_other_columns(reranker, results):
    shuffled = results.sample(frac=1, random_state=0).assign(url="u")
    before = shuffled.copy()
    reranked = reranker.transformer()(shuffled)
    assert list(reranker.transformer()(results.iloc[:0]).columns) == [*results.columns[:4], "score", "rank"]
    assert not pt.java.started()
    assert reranked[["qid", "docno", "url"]].equals(shuffled[["qid", "docno", "url"]])
    assert shuffled.equals(before)


def test_rows_of_a_document_with_other_texts_have_scores_of_their_own(reranker):
    """PyTerrier splits documents into passages that may share a docno, and rewrites queries."""
    rows = [("q1", "amber", "d1", "birch"), ("q1", "amber", "d1", "cedar delta"), ("q2", "amber", "d1", "birch")]
    scores = list(reranker.transformer()(pd.DataFrame(rows, columns=["qid", "query", "docno", "text"])).score)
    assert scores[0] == scores[2] != scores[1]
    assert scores[:2] == pytest.approx(reranker.score("amber", ["birch", "cedar delta"]).tolist(), abs=1e-6)


def test_rows_without_text_are_refused(reranker, results):
    with pytest.raises(pt.validate.InputValidationError, match="text"):
        reranker.transformer()(results.drop(columns="text"))
    results["text"] = results["text"].astype(object)
    results.loc[2, "text"] = float("nan")
    with pytest.raises(TypeError, match=r"^column text\[2\]: expected a text, got float$"):
        reranker.transformer()(results)


def test_a_model_that_adds_the_first_stages_scores_reads_them(reranker, results, monkeypatch):
    monkeypatch.setattr(reranker.model, "first_stage_weight", 3.0)
    results = results.sample(frac=1, random_state=0)
    reranked = reranker.transformer()(results)
    for qid, query in QUERIES.items():
        rows, given = reranked[reranked.qid == qid], results[results.qid == qid]
        first = given.set_index("docno").score[rows.docno]
        expected = reranker.score(query, list(rows.text), list(first))
        assert list(rows.score) == pytest.approx(list(expected), abs=1e-5)
    with pytest.raises(Exception, match="score"):
        reranker.transformer()(results.drop(columns="score"))
    results.loc[2, "score"] = float("nan")
    with pytest.raises(UserError, match=r"column score\[\d\]: got nan, expected a finite score"):
        reranker.transformer()(results)
