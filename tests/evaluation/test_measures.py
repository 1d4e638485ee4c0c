import ast
import math

import pytest
import pytrec_eval

from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import DEFAULT_MEASURES, WHOLE, WITH_CUTOFF, measure_name, measure_names
from rerank.utils.errors import UserError


def test_default_measures_are_the_papers_by_any_of_their_names() -> None:
    trec_eval = ["P_1", "P_5", "P_10", "P_20", "map", "ndcg_cut_1", "ndcg_cut_5", "ndcg_cut_10", "ndcg_cut_20", "ndcg"]
    labels = ["P@1", "P@5", "P@10", "P@20", "MAP", "NDCG@1", "NDCG@5", "NDCG@10", "NDCG@20", "NDCG"]
    assert measure_names(trec_eval) == measure_names(labels) == list(DEFAULT_MEASURES)
    assert measure_names(DEFAULT_MEASURES) == list(DEFAULT_MEASURES)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("ndcg_cut_20", "nDCG@20"),
        ("ndcg_cut.20", "nDCG@20"),
        ("NDCG@20", "nDCG@20"),
        ("nDCG(dcg='log2')@20", "nDCG@20"),
        ("nDCG(dcg='exp-log2')@20", "nDCG(dcg='exp-log2')@20"),
        ('nDCG( dcg="exp-log2" )', "nDCG(dcg='exp-log2')"),
        ("map", "AP"),
        ("MAP", "AP"),
        ("MAP@100", "AP@100"),
        ("map_cut_5", "AP@5"),
        ("recall_100", "R@100"),
        ("Recall@100", "R@100"),
        ("R(rel=1)@100", "R@100"),
        ("R(rel=2)@100", "R(rel=2)@100"),
        ("recip_rank", "RR"),
        ("rr", "RR"),
        ("Rprec", "Rprec"),
        ("RPrec", "Rprec"),
        ("bpref", "Bpref"),
        ("P_3", "P@3"),
        ("Precision@3", "P@3"),
        ("success_10", "Success@10"),
        ("iprec_at_recall_0.10", "IPrec@0.1"),
        ("IPrec@0.10", "IPrec@0.1"),
        ("set_F", "SetF"),
        ("11pt_avg", "11pt_avg"),
        ("relative_P_5", "relative_P@5"),
        ("set_relative_P", "SetP(relative=True)"),
        ("SetP(relative=True, rel=2)", "SetP(relative=True,rel=2)"),
        ("set_relative_P(rel=2)", "SetP(relative=True,rel=2)"),
        ("num_q", "NumQ"),
        ("num_ret", "NumRet"),
        ("num_rel", "NumRel"),
        ("NumRel(rel=2)", "NumRel(rel=2)"),
        ("num_rel_ret", "NumRet(rel=1)"),
        ("NumRelRet(rel=2)", "NumRet(rel=2)"),
        ("gm_map", "gm_map"),
        ("GM_MAP(rel=2)", "gm_map(rel=2)"),
        ("utility", "utility"),
        ("binG(rel=2)", "binG(rel=2)"),
        ("Rndcg(rel=2)", "Rndcg(rel=2)"),
        ("Judged@20", "Judged@20"),
        ("MRR@10", "RR@10"),
        ("RR(rel=2)@10", "RR(rel=2)@10"),
        ("ERR@20", "ERR@20"),
        ("RBP(p=0.5, rel=1)", "RBP(p=0.5,rel=1)"),
        ("RBP(rel=1,p=0.8)", "RBP(rel=1)"),
        ("nDCG(judged_only=True)@10", "nDCG(judged_only=True)@10"),
        ("nDCG(gains={1: 3, 2: 4})@10", "nDCG(gains={1:3,2:4})@10"),
    ],
)
def test_names_of_trec_eval_and_ir_measures(written: str, name: str) -> None:
    assert measure_names([written, name]) == [name]


TREC_EVALS_ALONE = {"11pt_avg", "ndcg_rel", "Rndcg", "G", "binG", "utility", "gm_map", "gm_bpref"}
TREC_EVALS_ALONE |= {"num_nonrel_judged_ret"}


def parameters(text: str) -> list[list[str]]:
    return [part.split("=") for part in text.split(",")]


def test_names_are_those_of_ir_measures() -> None:
    ir_measures = pytest.importorskip("ir_measures")
    names = [*measure_names(WHOLE), *measure_names(f"{name}_5" for name in WITH_CUTOFF), "IPrec@0.1", "RR(rel=2)@10"]
    names += measure_names(["set_relative_P", "num_rel_ret"])
    for name in set(names) - {*TREC_EVALS_ALONE, "relative_P@5"}:
        family, _, at = name.partition("@")
        measure = ir_measures.measures.registry[family.partition("(")[0]]
        inside = name.partition("(")[2].partition(")")[0]
        measure = measure(**{key: ast.literal_eval(value) for key, value in parameters(inside)}) if inside else measure
        assert str(measure @ (float(at) if "." in at else int(at)) if at else measure) == name


def test_one_name_of_trec_eval_can_be_several_measures() -> None:
    assert measure_names(["ndcg_cut.10,20", "P_5,10", "iprec_at_recall.0.10,0.20"]) == [
        "nDCG@10",
        "nDCG@20",
        "P@5",
        "P@10",
        "IPrec@0.1",
        "IPrec@0.2",
    ]
    assert measure_name("ndcg_cut.20") == "nDCG@20"
    with pytest.raises(UserError, match=r"measures: expected one, got ndcg_cut.10,20 \(nDCG@10, nDCG@20\)"):
        measure_name("ndcg_cut.10,20")
    cuts = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
    assert measure_names(["relative_P"]) == [f"relative_P@{cut}" for cut in cuts]
    with pytest.raises(UserError, match=r"unknown 'P_0' \(0 is no cut-off"):
        measure_names(["P_5,0"])


def test_all_unknown_measures_are_named_at_once() -> None:
    bad = [
        "NDGC@20",
        "P_0",
        "P",
        "P@-1",
        "bogus@x",
        "IPrec@0.123",
        "P(rel=0)@5",
        "nDCG(rel=2)@5",
        "G(rel=2)",
        "NumQ(rel=2)",
    ]
    bad += ["ERR", "ERR@0", "ERR(", "alpha_nDCG@10", "RBP(rel=1)@10", "SDCG@10"]
    with pytest.raises(UserError) as error:
        measure_names(["map", *bad])
    line = str(error.value)
    assert line.startswith("measures: unknown 'NDGC@20' (did you mean nDCG@20?), 'P_0' (0 is no cut-off from 1 to")
    assert all(f"'{name}' (" in line for name in bad)
    assert "'map'" not in line
    assert "'ERR' (ir_measures computes it with other parameters; it takes @cutoff)" in line
    assert "'alpha_nDCG@10' (it measures subtopics" in line
    needed = "pip install ir-measures[trectools] (No module named 'trectools')"
    assert f"'RBP(rel=1)@10' (ir_measures needs more for it: {needed}; or" in line
    assert "'nDCG(rel=2)@5' (expected no parameter but dcg)" in line
    with pytest.raises(UserError, match="expected dcg='log2', with gain rel, or dcg='exp-log2'"):
        measure_names(["nDCG(dcg='log10')@20"])


def test_every_measure_that_is_offered_is_the_one_of_pytrec_eval() -> None:
    qrels = {"p": {"a": 1, "b": 0, "c": 3, "e": 1}, "q": {"a": 0}}
    run = {"p": {"a": 1.0, "b": 2.0, "c": 0.5, "d": 4.0}, "q": {"a": 1.0}}
    names = [*WHOLE, *(f"{name}_2" for name in WITH_CUTOFF), "iprec_at_recall_0.50", "set_relative_P", "num_rel_ret"]
    values = evaluate(qrels, run, names)
    assert list(values) == measure_names(names)
    for name, trec_name in zip(measure_names(names), names, strict=True):
        alone = pytrec_eval.RelevanceEvaluator(qrels, {trec_name}).evaluate(run)
        assert values[name] == {query_id: alone[query_id][trec_name] for query_id in qrels}
    counts = {"NumQ": 1, "NumRet": 1, "num_nonrel_judged_ret": 1, "utility": -1}
    logs = dict.fromkeys(("gm_map", "gm_bpref"), math.log(1e-5))
    assert {name: of["q"] for name, of in values.items()} == dict.fromkeys(values, 0.0) | counts | logs


def test_one_measure_to_choose_by_has_a_mean_over_queries() -> None:
    for name in ("num_ret", "NumQ", "gm_map", "gm_bpref(rel=2)"):
        with pytest.raises(UserError, match=r"expected one with a mean over the queries, such as nDCG@20 or AP, got"):
            measure_name(name)
