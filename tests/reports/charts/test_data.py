"""What the charts show, against loops and examples by hand."""

import json

import numpy as np
import pytest

from rerank.data.trec import ranked
from rerank.evaluation.evaluate import evaluate
from rerank.reports.charts.depth import depths, ideal, judged
from rerank.reports.charts.gain import gains, scores
from rerank.reports.charts.training import curves, reliability
from rerank.runs.results import read_results
from rerank.utils.errors import UserError
from tests.support.small_results import DEPTH, FIRST_STAGE


def mean(results, run, measure="nDCG@5"):
    values = evaluate(results.qrels, run, [measure])[measure]
    return sum(values.values()) / len(values)


def test_depth_goes_from_the_first_stage_to_the_run_below_the_upper_bound(results):
    data = depths(results)
    good = results.experiments[0]
    assert (data.depths[0], data.depths[-1]) == (0, DEPTH)
    for name, line in data.reached.items():
        assert line[0] == pytest.approx(mean(results, good.first_stage))
        assert all(value <= most + 1e-12 for value, most in zip(line, data.upper_bounds[FIRST_STAGE], strict=True)), (
            name
        )
    assert data.reached["good"][-1] == pytest.approx(mean(results, good.run))
    assert data.upper_bounds[FIRST_STAGE][-1] == pytest.approx(mean(results, ideal(good.first_stage, results.qrels)))


@pytest.mark.parametrize("measure", ["AP", "bpref", "Judged@3", "nDCG"])
def test_depth_measures_as_eval_does_whatever_judgments_it_leaves_out(folder, measure):
    with (folder / "qrels.txt").open("a") as qrels:
        qrels.write("q0 0 elsewhere 0\nq1 0 elsewhere 0\nq1 0 nowhere 2\n")
    results = read_results(folder, measure)
    good = results.experiments[0]
    assert depths(results).reached["good"][-1] == pytest.approx(mean(results, good.run, results.measure))


def test_gains_are_differences_most_helped_first(results):
    data = gains(results, results.experiments[0])
    good = results.experiments[0]
    before, after = (evaluate(results.qrels, run, ["nDCG@5"])["nDCG@5"] for run in (good.first_stage, good.run))
    assert [query.gain for query in data.queries] == sorted((after[q] - before[q] for q in before), reverse=True)
    assert sum(after.values()) > sum(before.values())
    assert data.measure == "nDCG@5"


def test_judged_shares_against_a_loop(results):
    data = judged(results)
    good = results.experiments[0]
    for k in range(1, DEPTH + 1):
        shares = [sum(d in results.qrels[q] for d in ranked(good.run[q])[:k]) / k for q in results.qrels]
        assert data.experiments["good"][k - 1] == pytest.approx(sum(shares) / len(shares))


def test_scores_fall_into_relevant_and_others(results):
    good, poor = (scores(results, experiment) for experiment in results.experiments)
    run = results.experiments[0].run
    relevant = [s for q, of in run.items() for d, s in of.items() if results.qrels[q].get(d, 0) > 0]
    assert sorted(good.relevant) == sorted(relevant)
    assert len(good.others) == sum(map(len, run.values())) - len(relevant)
    assert (
        np.median(good.relevant) - np.median(good.others) > 0.4 > abs(np.median(poor.relevant) - np.median(poor.others))
    )


def test_the_kept_epoch_is_the_first_of_the_best(results, folder):
    assert {curve.kept["epoch"] for curve in curves(results.experiments[0])} == {1}
    log = folder / "good" / "fold2" / "log.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    records[1]["valid"] = records[2]["valid"] = 0.6
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert [curve.kept["epoch"] for curve in curves(read_results(folder, "AP").experiments[0])] == [1, 2, 1]


def test_reliability_has_steps_or_else_epochs(results, folder):
    steps = reliability(results.experiments[0])
    assert (steps.unit, steps.first.shape, steps.second.shape) == ("step", (3 * 4, 2), (3 * 2 * 4, 2))
    np.testing.assert_allclose(steps.second[:, 1], 0.9 * steps.second[:, 0], atol=1e-4)
    for log in folder.glob("good/fold*/log.jsonl"):
        records = [json.loads(line) for line in log.read_text().splitlines()]
        log.write_text("".join(json.dumps({k: v for k, v in r.items() if k != "steps"}) + "\n" for r in records))
    epochs = reliability(read_results(folder, "AP").experiments[0])
    assert (epochs.unit, epochs.first.shape, epochs.second.shape) == ("epoch", (3, 2), (6, 2))


def test_no_common_query_is_no_chart(folder):
    for number in ("1", "2"):
        (folder / "good" / f"fold{number}" / "test.run").unlink()
    (folder / "poor" / "fold3" / "test.run").unlink()
    with pytest.raises(UserError, match="no query was tested by all experiments"):
        depths(read_results(folder, "AP"))
