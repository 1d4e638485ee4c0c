"""Measure against depth: what re-ranking only the first stage's best d documents gives, and could give at most."""

from typing import Any, NamedTuple

from rerank.data.trec import ranked
from rerank.errors import UserError
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import measure_label
from rerank.reports.charts.drawing import INK, QUIET, colour, legend_above
from rerank.runs.results import Experiment, Results
from rerank.types import Qrels, Run

DEPTHS = (1, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)


class Depths(NamedTuple):
    """The mean measure at each depth: of each experiment, and the most that each first stage allows."""

    measure: str
    topics: int
    depths: list[int]
    reached: dict[str, list[float]]
    ceilings: dict[str, list[float]]


def common_topics(results: Results) -> list[str]:
    """The judged topics that every experiment with a first stage has tested; raises UserError where there is none."""
    sets = [set(experiment.run) for experiment in results.experiments if experiment.first_stage]
    found = [query_id for query_id in results.qrels if sets and all(query_id in tested for tested in sets)]
    if not found:
        for experiment in results.experiments:
            experiment.candidates()
        raise UserError(f"{results.folder}: no topic was tested by all experiments, so they cannot stand in one chart")
    return found


def re_ranked(first: Run, run: Run, depth: int) -> Run:
    """The first `depth` documents of each query in the run's order, the others behind them as they were.

    >>> re_ranked({"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"a": 1.0, "b": 2.0, "c": 3.0}}, 2)
    {'q': {'b': 0.0, 'a': -1.0, 'c': -2.0}}
    """
    mixed = {}
    for query_id, scores in first.items():
        order = ranked(scores)
        head = set(order[:depth])
        again = [doc_id for doc_id in ranked(run.get(query_id, {})) if doc_id in head]
        again += [doc_id for doc_id in order[:depth] if doc_id not in run.get(query_id, {})]
        mixed[query_id] = {doc_id: float(-place) for place, doc_id in enumerate(again + order[depth:])}
    return mixed


def ideal(first: Run, qrels: Qrels) -> Run:
    """The same documents, best judged first: no re-ranking can measure higher."""
    return {
        query_id: {doc_id: float(max(0, qrels.get(query_id, {}).get(doc_id, 0))) for doc_id in scores}
        for query_id, scores in first.items()
    }


def depths(results: Results) -> Depths:
    """The curves over the topics that all experiments have tested; raises UserError where there are none."""
    topics = common_topics(results)
    experiments = [experiment for experiment in results.experiments if experiment.first_stage]
    deepest = max(len(scores) for experiment in experiments for scores in experiment.first_stage.values())
    steps = [0, *(depth for depth in DEPTHS if depth < deepest), deepest]
    qrels = _relevant_or_found(results.judged(topics), experiments, results.measure)

    def mean(run: Run) -> float:
        values = evaluate(qrels, run, [results.measure])[results.measure]
        return sum(values.values()) / len(values)

    ceilings, reached = {}, {}
    for experiment in experiments:
        first = {
            query_id: experiment.first_stage[query_id] for query_id in topics if query_id in experiment.first_stage
        }
        name = results.first_stage_name(experiment)
        if name not in ceilings:
            best = ideal(first, qrels)
            ceilings[name] = [mean(re_ranked(first, best, depth)) for depth in steps]
        reached[experiment.name] = [mean(re_ranked(first, experiment.run, depth)) for depth in steps]
    return Depths(measure_label(results.measure), len(topics), steps, reached, ceilings)


def draw_depths(figure: Any, data: Depths) -> None:
    """A line an experiment, from the first stage alone at depth 0, and the ceilings above."""
    axes = figure.subplots()
    for name, values in data.ceilings.items():
        axes.plot(data.depths, values, "--", color=INK, label=f"ideal re-ranking of {name}", linewidth=1)
        axes.axhline(values[0], color=QUIET, linewidth=1, linestyle=":", label=name)
    for number, (name, values) in enumerate(data.reached.items()):
        axes.plot(data.depths, values, color=colour(number), marker=".", label=name)
    axes.set_xlabel("documents re-ranked of each topic")
    axes.set_ylabel(f"{data.measure}, mean of {data.topics} topics")
    legend_above(axes, columns=2)


def _relevant_or_found(qrels: Qrels, experiments: list[Experiment], measure: str) -> Qrels:
    """Without the judgments that only bpref and infAP look at: they are most, and reading them is most of the time."""
    if measure.lower().startswith(("bpref", "infap")):
        return qrels
    return {
        query_id: {
            doc_id: grade
            for doc_id, grade in judged.items()
            if grade > 0 or any(doc_id in experiment.first_stage.get(query_id, {}) for experiment in experiments)
        }
        for query_id, judged in qrels.items()
    }
