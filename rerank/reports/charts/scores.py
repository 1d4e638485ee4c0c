"""Score distributions of relevant documents and of all others."""

from typing import Any, NamedTuple

import numpy as np

from rerank.reports.charts.drawing import SERIES, legend_above
from rerank.runs.results import Compared, Results
from rerank.utils.errors import UserError

BINS = 40


class Scores(NamedTuple):
    """(documents,) scores of the relevant documents and of the others, judged or not, over all tested queries."""

    relevant: np.ndarray
    others: np.ndarray


def scores(results: Results, experiment: Compared) -> Scores:
    """The scores of the judged queries; raises UserError if one side has none."""
    relevant: list[float] = []
    others: list[float] = []
    for query_id, judged in results.judged(experiment.run).items():
        for doc_id, score in experiment.run[query_id].items():
            (relevant if judged.get(doc_id, 0) > 0 else others).append(score)
    if not relevant or not others:
        raise UserError(
            f"{experiment.name}: scored {len(relevant)} relevant documents and {len(others)} others: no chart"
        )
    return Scores(np.array(relevant), np.array(others))


def draw_scores(figure: Any, data: Scores) -> None:
    """Two histograms over the same bins, each in per cent of its documents."""
    axes = figure.subplots()
    edges = np.histogram_bin_edges(np.concatenate(data), BINS)
    for values, name, colour in ((data.others, "others", SERIES[1]), (data.relevant, "relevant", SERIES[0])):
        share = 100 / len(values) * np.ones(len(values))
        label = f"{name} ({len(values):,})"
        axes.hist(values, edges, weights=share, color=colour, alpha=0.55, histtype="stepfilled", label=label)
        axes.axvline(float(np.median(values)), color=colour, linewidth=1.2)
    axes.set_xlabel("score; a line is the median")
    axes.set_ylabel("% of these documents")
    legend_above(axes)
