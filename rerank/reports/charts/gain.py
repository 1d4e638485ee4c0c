"""Per-query gain: the change of the measure by re-ranking, sorted."""

from typing import Any, NamedTuple

from rerank.evaluation.evaluate import evaluate
from rerank.reports.charts.drawing import INK, SERIES, hover
from rerank.runs.results import Compared, Results


class Gain(NamedTuple):
    """A query's measure before and after re-ranking; `text` is "" if unknown."""

    query_id: str
    text: str
    before: float
    after: float

    @property
    def gain(self) -> float:
        """After - before."""
        return self.after - self.before


class Gains(NamedTuple):
    """The queries, most helped first, and the label of the measure."""

    measure: str
    queries: list[Gain]


def gains(results: Results, experiment: Compared) -> Gains:
    """The gain of every judged query of the run; raises UserError if the first stage's run is missing."""
    qrels, runs = results.judged(experiment.run), (experiment.candidates(), experiment.run)
    before, after = (evaluate(qrels, run, [results.measure])[results.measure] for run in runs)
    queries = [
        Gain(query_id, results.queries.get(query_id, ""), before[query_id], after[query_id]) for query_id in before
    ]
    return Gains(results.measure, sorted(queries, key=lambda query: (-query.gain, query.query_id)))


def draw_gains(figure: Any, data: Gains) -> None:
    """A bar per query."""
    axes = figure.subplots()
    for x, query in enumerate(data.queries):
        (bar,) = axes.bar([x], [query.gain], width=1.0 if len(data.queries) > 60 else 0.8, color=SERIES[query.gain < 0])
        bar.set_in_layout(False)  # laying out hundreds of bars is slow, and none exceeds the axes
        text = f"{query.query_id}: {query.text}" if query.text else query.query_id
        hover(bar, f"{text} — {query.before:.3f} → {query.after:.3f} ({query.gain:+.3f})")
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_xticks([])
    axes.grid(visible=False, axis="x")
    helped, hurt = (sum(sign * query.gain > 0 for query in data.queries) for sign in (1, -1))
    axes.set_xlabel(
        f"{len(data.queries)} queries: {helped} helped, {hurt} hurt, {len(data.queries) - helped - hurt} as before"
    )
    axes.set_ylabel(f"change of {data.measure}")
