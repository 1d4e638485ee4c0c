"""Random runs and judgments: the values are those of trec_eval and of plain loops over the definitions."""

import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

from scripts.campaign.forked import Command
from scripts.campaign.judgments import judgments
from scripts.campaign.trials import Trial, kind

DRAWS = 150
"""Runs and judgments of a trial."""
SECONDS = 60.0
ALLOWED = 1e-9
"""The largest difference from a plain loop."""
HIGHEST = (1, 3, 255, 2**31)
"""Highest grades; with the last one, measures of graded judgments are refused, and trec_eval's memory is not enough."""


@kind
def measures(trial: Trial) -> None:
    """In a process of its own, which pytrec_eval may end or hang."""
    words = (str(trial.rng.randrange(2**32)), str(DRAWS), str(trial.rng.choice(HIGHEST)))
    command = Command(words, "scripts.campaign.measures:compare", limit=SECONDS)
    (ended,) = trial.run(trial.folder, command)
    if ended.code != 0:
        trial.complain("the evaluation ends the process", ended)
        return
    for what in json.loads(ended.out):
        trial.complain(what)


def compare(words: list[str]) -> None:
    """Compares values for a seed, a number of draws and a highest grade, and prints what differs as a JSON list."""
    seed, draws, highest = map(int, words)
    rng, found = random.Random(seed), []
    for draw in range(draws):
        qrels, run = judgments(rng, highest)
        found += [f"draw {draw}: {what}, qrels {qrels}, run {run}" for what in _against_loops(qrels, run)]
        if highest < HIGHEST[-1]:
            found += [f"draw {draw}: {what}, qrels {qrels}, run {run}" for what in _against_trec_eval(qrels, run)]
    sys.stdout.write(json.dumps(found[:5]))


def _against_trec_eval(qrels: Any, run: Any) -> list[str]:
    """What differs from pytrec_eval, to the last bit; grades below 0 are 0, as it is not defined on them."""
    import pytrec_eval

    from rerank.evaluation.evaluate import evaluate
    from rerank.evaluation.measures import measure_names

    names = ["map", "ndcg", "recip_rank", "Rprec", "bpref", "infAP", "set_P", "set_F", "num_rel", "num_rel_ret"]
    names += [f"{name}_{cutoff}" for name in ("P", "recall", "map_cut", "ndcg_cut", "success") for cutoff in (1, 3, 10)]
    clamped = {q: {doc_id: max(grade, 0) for doc_id, grade in of.items()} for q, of in qrels.items()}
    expected = pytrec_eval.RelevanceEvaluator(clamped, set(names)).evaluate(run)
    values = evaluate(qrels, run, names)
    return [
        f"{name} of {query_id}: expected {of[trec_name]!r}, got {values[name][query_id]!r}"
        for name, trec_name in zip(measure_names(names), names, strict=True)
        for query_id, of in expected.items()
        if values[name][query_id] != of[trec_name]
    ]


def _against_loops(qrels: Any, run: Any) -> list[str]:
    """What differs from plain loops by more than ALLOWED."""
    from rerank.evaluation.evaluate import evaluate

    grades = [grade for of in qrels.values() for grade in of.values()]
    loops = {name: loop for name, loop in LOOPS.items() if "nDCG" not in name or max(grades) < HIGHEST[-2]}
    values = evaluate(qrels, run, loops)
    found = []
    for query_id, grades in qrels.items():
        ranking = _ranking(run.get(query_id, {}))
        ranked_grades = [max(grades.get(doc_id, 0), 0) for doc_id in ranking]
        ideal = sorted((max(grade, 0) for grade in grades.values()), reverse=True)
        for name, loop in loops.items():
            expected = loop(ranked_grades, ideal)
            got = values[name][query_id]
            if not abs(expected - got) <= ALLOWED:
                found.append(f"{name} of {query_id}: expected {expected!r}, got {got!r}")
    return found


def _ranking(scores: dict[str, float]) -> list[str]:
    """trec_eval's order: float32 scores, highest first, and ties by document id, last first."""
    import numpy as np

    return sorted(scores, key=lambda doc_id: (np.float32(scores[doc_id]), doc_id), reverse=True)


def _precision(ranking: Sequence[int], cutoff: int) -> float:
    return sum(grade > 0 for grade in ranking[:cutoff]) / cutoff


def _average_precision(ranking: Sequence[int], ideal: Sequence[int]) -> float:
    relevant = sum(grade > 0 for grade in ideal)
    found = [_precision(ranking, rank) for rank, grade in enumerate(ranking, 1) if grade > 0]
    return sum(found) / relevant if relevant else 0.0


def _ndcg(ranking: Sequence[int], ideal: Sequence[int]) -> float:
    best = _dcg(ideal)
    return _dcg(ranking) / best if best else 0.0


def _dcg(grades: Sequence[int]) -> float:
    return math.fsum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def _reciprocal_rank(ranking: Sequence[int], _: Sequence[int]) -> float:
    return next((1 / rank for rank, grade in enumerate(ranking, 1) if grade > 0), 0.0)


def _recall(ranking: Sequence[int], ideal: Sequence[int], cutoff: int) -> float:
    relevant = sum(grade > 0 for grade in ideal)
    return sum(grade > 0 for grade in ranking[:cutoff]) / relevant if relevant else 0.0


LOOPS: dict[str, Callable[[Sequence[int], Sequence[int]], float]] = {
    "P@5": lambda ranking, _: _precision(ranking, 5),
    "R@5": lambda ranking, ideal: _recall(ranking, ideal, 5),
    "AP": _average_precision,
    "RR": _reciprocal_rank,
    "RR@3": lambda ranking, ideal: _reciprocal_rank(ranking[:3], ideal),
    "nDCG": _ndcg,
    "nDCG@5": lambda ranking, ideal: _ndcg(ranking[:5], ideal[:5]),
    "Rprec": lambda ranking, ideal: _recall(ranking, ideal, sum(grade > 0 for grade in ideal)),
    "Success@3": lambda ranking, _: float(any(grade > 0 for grade in ranking[:3])),
}
"""Measures as functions of the grades in the order of the ranking, and of all grades, highest first."""
