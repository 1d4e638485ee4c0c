"""Evaluates random runs on random grades, also below 0, with random measures; exits with 0 if every value is right.

A program of its own: a fault of pytrec_eval ends the process. Arguments: seed, number of trials, highest grade.
"""

import faulthandler
import math
import random
import sys

import pytrec_eval

from rerank.data.types import Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import HIGHEST_GAIN, measure_names

GRADED = ("ndcg", "ndcg_cut_1", "ndcg_cut_3", "ndcg_cut_10")
BINARY = (
    *("map", "recip_rank", "Rprec", "bpref", "infAP", "set_P", "set_relative_P", "set_recall", "set_map", "set_F"),
    *("num_q", "num_ret", "num_rel", "num_rel_ret", "iprec_at_recall_0.30"),
    *(f"{name}_{cutoff}" for name in ("P", "recall", "map_cut", "success") for cutoff in (1, 3, 10)),
)
"""Measures of trec_eval, of graded judgments and of binary ones."""
OTHERS = (
    *(
        "Judged@5",
        "RR@3",
        "P(rel=2)@3",
        "Bpref(rel=3)",
        "infAP(rel=2)",
        "RBP(p=0.5,rel=1)",
        "Compat(p=0.8)",
    ),
    *("AP(judged_only=True)", "nDCG(judged_only=True)@5"),
)
FAULTS = (["bpref", "map"], ["ndcg_cut_10"], ["ndcg", "infAP"])
"""Measures that faulted, or never ended, on a first query with negative grades alone."""


def judgments(rng: random.Random, highest: int) -> tuple[Qrels, Run]:
    """1 to 4 queries, up to 12 judged documents with grades below 0 too; runs with ties, of float32 too, and gaps."""
    qrels: Qrels = {}
    run: Run = {}
    for query_id in [f"q{i}" for i in range(rng.randint(1, 4))]:
        top = -1 if rng.random() < 0.2 else highest
        judged = rng.sample(range(15), rng.randint(1, 12))
        qrels[query_id] = {f"d{doc}": rng.choice([-3, -1, 0, rng.randint(-3, top)]) for doc in judged}
        scores = [1.0, 1.0 + 1e-9, -2.5, rng.random(), rng.uniform(-1e6, 1e6), 0.1 + 0.2, 0.3]
        if not run or rng.random() < 0.8:
            run[query_id] = {f"d{doc}": rng.choice(scores) for doc in rng.sample(range(15), rng.randint(1, 15))}
    return qrels, run


def check(qrels: Qrels, run: Run, names: list[str]) -> None:
    """Raises AssertionError for a value that is not finite, or not that of the same grades without negative ones.

    Nor may it differ from trec_eval's, where trec_eval has the measure.
    """
    values = evaluate(qrels, run, names)
    bounded = {q: {doc_id: min(max(grade, 0), HIGHEST_GAIN) for doc_id, grade in of.items()} for q, of in qrels.items()}
    assert values == evaluate(bounded, run, names), (qrels, run, names)
    assert all(math.isfinite(value) for of in values.values() for value in of.values()), (qrels, run, names)
    for name in names:
        if name in GRADED + BINARY:
            expected = pytrec_eval.RelevanceEvaluator(bounded, {name}).evaluate(run)
            found = {query_id: values[measure_names([name])[0]][query_id] for query_id in expected}
            assert found == {query_id: of[name] for query_id, of in expected.items()}, (qrels, run, name)


if __name__ == "__main__":
    faulthandler.enable()
    seed, trials, highest = map(int, sys.argv[1:])
    draw = random.Random(seed)
    junk = {"first": {"a": -2, "b": -1}, "second": {"a": 1, "c": -3}}
    for faulty in FAULTS:
        check(junk, {"first": {"a": 2.0, "x": 1.0}, "second": {"a": 1.0, "c": 2.0}}, faulty)
    others = [name for name in OTHERS if highest <= HIGHEST_GAIN or "nDCG" not in name]
    measures = [*BINARY, *others, *(GRADED if highest <= HIGHEST_GAIN else ())]
    for _ in range(trials):
        check(*judgments(draw, highest), draw.sample(measures, 5))
