"""Which stage answers: the cheapest that is within one standard error of the best."""

import pytest

from rerank.pipelines.choice import choose, is_ahead, values_of


def by_query(*values):
    return {f"q{number}": value for number, value in enumerate(values)}


CHEAP = by_query(0.5, 0.4, 0.6, 0.5)


@pytest.mark.parametrize(
    "others, chosen",
    [
        ({}, "cheap"),
        ({"same": CHEAP}, "cheap"),
        ({"worse": by_query(0.4, 0.3, 0.5, 0.4)}, "cheap"),
        ({"better": by_query(0.6, 0.5, 0.7, 0.5)}, "better"),
        # .025 ahead on average, with a standard error of .08: not ahead.
        ({"noisy": by_query(0.7, 0.2, 0.6, 0.6)}, "cheap"),
        # A middle one that is as good as the best is cheaper.
        ({"middle": by_query(0.6, 0.5, 0.7, 0.5), "last": by_query(0.6, 0.5, 0.7, 0.51)}, "middle"),
        # One that was fitted once a fold has validation queries alone.
        ({"better": by_query(0.6, 0.5, 0.7, 0.5), "model": by_query(0.7, 0.6)}, "model"),
        ({"better": by_query(0.6, 0.5, 0.7, 0.5), "model": by_query(0.6, 0.5)}, "better"),
    ],
)
def test_the_cheapest_that_is_as_good_as_the_best_is_chosen(others, chosen):
    assert choose({"cheap": CHEAP, **others}) == chosen


def test_one_query_is_no_evidence():
    assert not is_ahead({"q": 1.0}, {"q": 0.0})
    assert not is_ahead({"q": 1.0}, {"other": 0.0})


def test_a_judged_query_that_the_run_lacks_counts_0():
    qrels = {"a": {"d": 1}, "b": {"d": 1}, "unjudged": {}}
    assert values_of({"a": {"d": 1.0}}, qrels, ["a", "b", "unjudged"], "nDCG@10") == {"a": 1.0, "b": 0.0}
    assert values_of({}, qrels, ["a"], "nDCG@10") == {"a": 0.0}
