import pytest
import pytrec_eval

from rerank.errors import UserError
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import MEASURES, WHOLE, WITH_CUTOFF, measure_label, measure_names


def test_default_measures_are_the_papers() -> None:
    labels = ["P@1", "P@5", "P@10", "P@20", "MAP", "NDCG@1", "NDCG@5", "NDCG@10", "NDCG@20", "NDCG"]
    assert [measure_label(name) for name in MEASURES] == labels
    assert measure_names(labels) == list(MEASURES)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ndcg_cut_20", "ndcg_cut_20"),
        ("ndcg_cut.20", "ndcg_cut_20"),
        ("nDCG@20", "ndcg_cut_20"),
        ("nDCG(dcg='log2')@20", "ndcg_cut_20"),
        ("nDCG(dcg='exp-log2')@20", "nDCG(dcg='exp-log2')@20"),
        ('nDCG( dcg="exp-log2" )', "nDCG(dcg='exp-log2')"),
        ("AP", "map"),
        ("AP@100", "map_cut_100"),
        ("map_cut_5", "map_cut_5"),
        ("R@100", "recall_100"),
        ("R(rel=1)@100", "recall_100"),
        ("R(rel=2)@100", "R(rel=2)@100"),
        ("RR", "recip_rank"),
        ("rr", "recip_rank"),
        ("Rprec", "Rprec"),
        ("Bpref", "bpref"),
        ("P_3", "P_3"),
        ("Success@10", "success_10"),
        ("IPrec@0.1", "iprec_at_recall_0.10"),
        ("iprec_at_recall_0.10", "iprec_at_recall_0.10"),
        ("SetF", "set_F"),
        ("11pt_avg", "11pt_avg"),
        ("Judged@20", "Judged@20"),
        ("MRR@10", "RR@10"),
        ("RR(rel=2)@10", "RR(rel=2)@10"),
        ("ERR@20", "ERR@20"),
        ("RBP(p=0.5, rel=1)", "RBP(p=0.5,rel=1)"),
        ("RBP(rel=1,p=0.8)", "RBP(rel=1)"),
        ("nDCG(judged_only=True)@10", "nDCG(judged_only=True)@10"),
    ],
)
def test_names_of_trec_eval_and_ir_measures(written: str, name: str) -> None:
    assert measure_names([written, name]) == [name]


def test_all_unknown_measures_are_named_at_once() -> None:
    bad = ["NDGC@20", "P_0", "P", "P@-1", "bogus@x", "IPrec@0.123", "P(rel=0)@5", "nDCG(rel=2)@5", "num_q", "NumQ"]
    bad += ["ERR", "ERR@0", "ERR(", "alpha_nDCG@10", "RBP(rel=1)@10", "SDCG@10"]
    with pytest.raises(UserError) as error:
        measure_names(["map", *bad])
    line = str(error.value)
    assert line.startswith("measures: unknown 'NDGC@20' (did you mean NDCG@20?), 'P_0' (0 is no cut-off from 1 to")
    assert all(f"'{name}' (" in line for name in bad)
    assert "'map'" not in line
    assert "'ERR' (ir_measures computes it with other settings; it takes @cutoff)" in line
    assert "'alpha_nDCG@10' (it measures subtopics" in line
    assert "'RBP(rel=1)@10' (ir_measures needs more for it: pip install ir-measures[trectools]; or" in line
    assert "'nDCG(rel=2)@5' (expected no setting but dcg)" in line
    with pytest.raises(UserError, match="expected dcg='log2', with gain rel, or dcg='exp-log2'"):
        measure_names(["nDCG(dcg='log10')@20"])


def test_every_measure_that_is_offered_is_the_one_of_pytrec_eval() -> None:
    qrels = {"p": {"a": 1, "b": 0, "c": 3, "e": 1}, "q": {"a": 0}}
    run = {"p": {"a": 1.0, "b": 2.0, "c": 0.5, "d": 4.0}, "q": {"a": 1.0}}
    names = [*WHOLE, *(f"{name}_2" for name in WITH_CUTOFF), "iprec_at_recall_0.50"]
    values = evaluate(qrels, run, names)
    for name in names:
        alone = pytrec_eval.RelevanceEvaluator(qrels, {name}).evaluate(run)
        assert values[name] == {query_id: alone[query_id][name] for query_id in qrels}
        assert values[name]["q"] == 0.0
