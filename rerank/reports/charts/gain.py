"""Per-query gain: what re-ranking changed for every topic, sorted."""

from typing import Any, NamedTuple

from rerank.evaluation.measures import measure_label
from rerank.reports.charts.drawing import INK, SERIES, hover
from rerank.runs.results import Experiment, Results


class Gain(NamedTuple):
    """A topic's measure before and after re-ranking; `text` is "" where it is not known."""

    query_id: str
    text: str
    before: float
    after: float

    @property
    def gain(self) -> float:
        """After - before."""
        return self.after - self.before


class Gains(NamedTuple):
    """The topics, most helped first, and the label of the measure."""

    measure: str
    topics: list[Gain]


def gains(results: Results, experiment: Experiment) -> Gains:
    """The gain of every topic that was tested and is judged; raises UserError where the first stage is not there."""
    before, after = results.values(experiment)
    topics = [
        Gain(query_id, results.queries.get(query_id, ""), before[query_id], after[query_id]) for query_id in before
    ]
    return Gains(measure_label(results.measure), sorted(topics, key=lambda topic: (-topic.gain, topic.query_id)))


def draw_gains(figure: Any, data: Gains) -> None:
    """A bar a topic."""
    axes = figure.subplots()
    for place, topic in enumerate(data.topics):
        (bar,) = axes.bar(
            [place], [topic.gain], width=1.0 if len(data.topics) > 60 else 0.8, color=SERIES[topic.gain < 0]
        )
        bar.set_in_layout(False)  # hundreds of them would take most of the time, and none is wider than the axes
        text = f"{topic.query_id}: {topic.text}" if topic.text else topic.query_id
        hover(bar, f"{text} — {topic.before:.3f} → {topic.after:.3f} ({topic.gain:+.3f})")
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_xticks([])
    axes.grid(visible=False, axis="x")
    helped, hurt = (sum(sign * topic.gain > 0 for topic in data.topics) for sign in (1, -1))
    axes.set_xlabel(
        f"{len(data.topics)} topics: {helped} helped, {hurt} hurt, {len(data.topics) - helped - hurt} as before"
    )
    axes.set_ylabel(f"change of {data.measure}")
