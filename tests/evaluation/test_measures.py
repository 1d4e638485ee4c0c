import pytest

from rerank.evaluation.measures import DEFAULT_MEASURES, measure_name, measure_names
from rerank.utils.errors import UserError


def test_default_measures_are_the_papers_by_any_of_their_names() -> None:
    trec_eval = ["P_1", "P_5", "P_10", "P_20", "map", "ndcg_cut_1", "ndcg_cut_5", "ndcg_cut_10", "ndcg_cut_20", "ndcg"]
    labels = ["P@1", "P@5", "P@10", "P@20", "MAP", "NDCG@1", "NDCG@5", "NDCG@10", "NDCG@20", "NDCG"]
    assert measure_names(trec_eval) == measure_names(labels) == list(DEFAULT_MEASURES)
    assert measure_names(DEFAULT_MEASURES) == list(DEFAULT_MEASURES)


SPELLINGS = {
    "nDCG@20": ["ndcg_cut_20", "ndcg_cut.20", "NDCG@20", "nDCG(dcg='log2')@20"],
    "nDCG(dcg='exp-log2')@20": ["nDCG(dcg='exp-log2')@20"],
    "nDCG(dcg='exp-log2')": ['nDCG( dcg="exp-log2" )'],
    "AP": ["map", "MAP"],
    "AP@100": ["MAP@100"],
    "AP@5": ["map_cut_5"],
    "R@100": ["recall_100", "Recall@100", "R(rel=1)@100"],
    "R(rel=2)@100": ["R(rel=2)@100"],
    "RR": ["recip_rank", "rr"],
    "Rprec": ["Rprec", "RPrec"],
    "Bpref": ["bpref"],
    "P@3": ["P_3", "Precision@3"],
    "Success@10": ["success_10"],
    "IPrec@0.1": ["iprec_at_recall_0.10", "IPrec@0.10"],
    "SetF": ["set_F"],
    "SetP(relative=True)": ["set_relative_P"],
    "SetP(relative=True,rel=2)": ["SetP(relative=True, rel=2)"],
    "NumQ": ["num_q"],
    "NumRet": ["num_ret"],
    "NumRel": ["num_rel"],
    "NumRet(rel=1)": ["num_rel_ret"],
    "NumRet(rel=2)": ["NumRelRet(rel=2)"],
    "Judged@20": ["Judged@20"],
    "RR@10": ["MRR@10"],
    "RR(rel=2)@10": ["RR(rel=2)@10"],
    "ERR@20": ["ERR@20"],
    "RBP(p=0.5,rel=1)": ["RBP(p=0.5, rel=1)"],
    "RBP(rel=1)": ["RBP(rel=1,p=0.8)"],
    "nDCG(judged_only=True)@10": ["nDCG(judged_only=True)@10"],
}
"""The names of ir_measures, in any case, and of trec_eval for the same measure."""


@pytest.mark.parametrize("name", SPELLINGS)
def test_names_of_trec_eval_and_ir_measures(name: str) -> None:
    for written in SPELLINGS[name]:
        assert measure_names([written, name]) == [name]


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
    with pytest.raises(UserError, match=r"unknown 'P_5,0' \(expected a cutoff from 1 to 999999, got 0"):
        measure_names(["P_5,0"])


def test_all_unknown_measures_are_named_at_once() -> None:
    reasons = {
        "NDGC@20": "did you mean nDCG@20?",
        "bogus@x": "expected one of",
        "11pt_avg": "expected one of",
        "P_0": "expected a cutoff from 1 to 999999, got 0",
        "ERR@0": "expected a cutoff from 1 to 999999, got 0",
        "P(rel=0)@5": "expected a rel from 1 to 4095, got 0",
        "IPrec@0.123": "expected a recall from 0.00 to 1.00, got 0.123",
        "P@0.5": "expected other parameters: it takes @cutoff, rel=, judged_only=",
        "nDCG(rel=2)@5": "expected other parameters: it takes @cutoff, dcg=, gains=, judged_only=",
        "nDCG(dcg='log10')@20": "expected other parameters",
        "nDCG(5)": "expected other parameters",
        "nDCG(gains={1:2})": "expected no gains=",
        "NumQ(rel=2)": "expected other parameters: it takes none",
        "ERR": "ir_measures does not compute it with these parameters; it takes @cutoff",
        "RBP(rel=1)@10": "ir_measures does not compute it with these parameters",
        "alpha_nDCG@10": "ir_measures does not compute it with these parameters",
        "Accuracy": "ir_measures does not compute it",
        "SetF(beta=NaN)": "expected finite numbers",
        "P@-1": "expected one of",
        "ERR(": "did you mean ERR?",
    }
    with pytest.raises(UserError) as error:
        measure_names(["map", *reasons])
    line = str(error.value)
    assert line.startswith("measures: unknown 'NDGC@20' (did you mean nDCG@20?), 'bogus@x' (")
    assert [name for name, reason in reasons.items() if f"{name!r} ({reason}" not in line] == []
    assert "'map'" not in line


def test_a_measure_of_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    import ir_measures

    monkeypatch.setattr(ir_measures.cwl_eval, "_is_available", False)
    with pytest.raises(UserError, match=r"it needs another package: pip install ir-measures\[cwl_eval\]"):
        measure_names(["RBP(rel=1)"])
