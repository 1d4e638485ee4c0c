"""The weights of a fusion against a loop over their definition."""

from statistics import fmean, stdev

import pytest

from rerank.evaluation import weights as module
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.fusion import fuse_scores
from rerank.evaluation.weights import tune_on, tune_weights, weights_of_grid
from rerank.utils.errors import UserError
from tests.support.random_runs import drawn, relevant_first_three

QRELS = relevant_first_three(15)
QUERIES = list(QRELS)

RUNS = {"a.run": drawn(QRELS, 1, 1.0), "b.run": drawn(QRELS, 2, 2.0)}


@pytest.mark.parametrize("runs", [2, 3, 4])
def test_the_grid_has_every_combination_once(runs: int) -> None:
    grid = weights_of_grid(runs)
    steps = 20 if runs == 2 else 10
    assert len(grid) == len(set(grid)) == {2: 21, 3: 66, 4: 286}[runs]
    assert all(sum(round(weight * steps) for weight in weights) == steps for weights in grid)
    assert all(weight == round(weight * steps) / steps for weights in grid for weight in weights)


@pytest.mark.parametrize(
    "measure", ["AP", "nDCG@5", "P@3", "RR@2", "R@10", "AP@7", "Success@1", "Judged@4", "IPrec@1.0"]
)
def test_weights_are_the_nearest_to_equal_of_those_almost_as_good_as_the_best(measure: str) -> None:
    qrels = {query_id: QRELS[query_id] for query_id in ("q0", "q1", "q2")}
    runs = [{q: run[q] for q in qrels} for run in (drawn(QRELS, 3, 0.5), drawn(QRELS, 4, 1.0), drawn(QRELS, 5, 3.0))]
    values = {}
    for weights in [(1 / 3, 1 / 3, 1 / 3), *weights_of_grid(3)]:
        (of_queries,) = evaluate(qrels, fuse_scores(runs, weights), [measure]).values()
        values[weights] = list(of_queries.values())
    best = max(values, key=lambda weights: fmean(values[weights]))
    least = fmean(values[best]) - stdev(values[best]) / len(qrels) ** 0.5 / 2
    good = [weights for weights, of in values.items() if fmean(of) >= least - 1e-12]
    nearest = min(good, key=lambda weights: sum((weight - 1 / 3) ** 2 for weight in weights))
    assert tune_weights(runs, qrels, measure) == nearest
    assert tune_weights([runs[0]] * 3, qrels, measure) == (1 / 3, 1 / 3, 1 / 3)


def test_some_of_many_queries_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = list(RUNS.values())
    monkeypatch.setattr(module, "MOST_QUERIES", 5)
    assert tune_weights(runs, QRELS) == tune_weights(runs, {q: QRELS[q] for q in sorted(QRELS)[::3]})


def test_nothing_to_tune_on_is_one_line() -> None:
    with pytest.raises(UserError, match=r"none of the queries of q\.txt is judged: there is nothing"):
        tune_on(RUNS, {"q": {}}, "P@3", "queries of q.txt")
    part = {"a.run": RUNS["a.run"], "b.run": {q: RUNS["b.run"][q] for q in QUERIES[5:]}}
    with pytest.raises(UserError, match=r"b.run: has none of the 5 judged queries of q.txt \(q0, q1, q2, …\)"):
        tune_on(part, {q: QRELS[q] for q in QUERIES[:5]}, "P@3", "queries of q.txt")
    with pytest.raises(UserError, match="the weights of 1 to 6 runs can be tuned, got 7"):
        tune_on({str(i): RUNS["a.run"] for i in range(7)}, QRELS, "P@3", "queries")
    with pytest.raises(UserError, match="the weights of 1 to 6 runs can be tuned, got 0"):
        tune_weights([], QRELS)
