"""Which stage answers: the last one, unless another is clearly ahead; a cross-encoder that is clearly ahead of it."""

import pytest

from rerank.evaluation.evaluate import values_of
from rerank.evaluation.weights import is_ahead
from rerank.pipelines.selection import choose


def by_query(*values):
    return {f"q{number}": value for number, value in enumerate(values)}


CHEAP = by_query(0.5, 0.4, 0.6, 0.5)
MODEL = "model"


@pytest.mark.parametrize(
    "others, chosen",
    [
        ({}, "cheap"),
        ({"same": CHEAP}, "cheap"),
        ({"worse": by_query(0.4, 0.3, 0.5, 0.4)}, "cheap"),
        ({"better": by_query(0.6, 0.5, 0.7, 0.5)}, "better"),
        ({"noisy": by_query(0.7, 0.2, 0.6, 0.6)}, "noisy"),
        # .025 behind on average, with a standard error of .08: not clearly.
        ({"noisy": by_query(0.3, 0.6, 0.4, 0.6)}, "noisy"),
        # 1.4 standard errors behind: not clearly.
        ({"behind": by_query(0.4, 0.3, 0.6, 0.52)}, "behind"),
        ({"better": by_query(0.6, 0.5, 0.7, 0.5), "best": by_query(0.7, 0.6, 0.8, 0.6), "worse": CHEAP}, "best"),
        ({"better": by_query(0.6, 0.5, 0.7, 0.5), "noisy": by_query(0.7, 0.2, 0.6, 0.6)}, "noisy"),
        # .025 ahead on average, with a standard error of .08: not clearly.
        ({MODEL: by_query(0.7, 0.2, 0.6, 0.6)}, "cheap"),
        ({MODEL: by_query(0.6, 0.5, 0.7, 0.5)}, MODEL),
        # One that was fitted once a fold has validation queries alone.
        ({"better": by_query(0.6, 0.5, 0.7, 0.5), MODEL: by_query(0.75, 0.4)}, "better"),
        ({"better": by_query(0.6, 0.5, 0.7, 0.5), MODEL: by_query(0.7, 0.61)}, MODEL),
        ({"better": by_query(0.6, 0.5, 0.7, 0.5), MODEL: by_query(0.6, 0.5)}, "better"),
    ],
)
def test_the_last_stage_is_chosen_unless_another_is_clearly_ahead(others, chosen):
    assert choose({"cheap": CHEAP, **others}, [MODEL]) == chosen


def test_a_cross_encoder_alone_answers():
    assert choose({MODEL: CHEAP}, [MODEL]) == MODEL


def test_one_query_is_no_evidence():
    assert not is_ahead({"q": 1.0}, {"q": 0.0})
    assert not is_ahead({"q": 1.0}, {"other": 0.0})


def test_a_judged_query_that_the_run_lacks_counts_0():
    qrels = {"a": {"d": 1}, "b": {"d": 1}, "unjudged": {}}
    assert values_of({"a": {"d": 1.0}}, qrels, ["a", "b", "unjudged"], "nDCG@10") == {"a": 1.0, "b": 0.0}
    assert values_of({}, qrels, ["a"], "nDCG@10") == {"a": 0.0}
