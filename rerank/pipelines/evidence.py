"""The evidence of a pipeline: the gain of each stage on held-out queries, as `fit` records it."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from rerank.evaluation.significance import bootstrap_intervals, mean_and_error, paired_test
from rerank.evaluation.weights import Values
from rerank.pipelines.graph import prefix
from rerank.pipelines.record import EvidenceRecord, Gain, StageRow
from rerank.pipelines.selection import Selected
from rerank.pipelines.stages.base import Stage, below


@dataclass(frozen=True)
class Trial:
    """How the stages were measured.

    judged: the number of judged queries.
    parts: the number of parts whose queries test.
    drawn: whether the parts were drawn at random.
    far: the tested queries that are least similar to any query of another part.
    taught: name of a stage -> the mean number of queries that it learned from.
    budget: milliseconds that a query may take; None if they are not bounded.
    """

    measure: str
    judged: int = 0
    parts: int = 0
    drawn: bool = True
    far: Collection[str] = ()
    taught: Mapping[str, int] = field(default_factory=dict)
    budget: float | None = None


def evidence_of(
    stages: Mapping[str, Stage], selected: Selected, trial: Trial, ms: Mapping[str, float]
) -> EvidenceRecord:
    """The evidence of a pipeline, as `record.read_evidence` reads it.

    `ms` has the milliseconds of each stage for a query, without the stages below.
    """
    values, nested = selected.values, selected.nested
    kept = prefix(stages, selected.answer)
    rows: list[StageRow] = []
    for name, settings in stages.items():
        others = [values[lower] for lower in below(settings) if values.get(lower)]
        rows.append(
            {
                "name": name,
                "kind": settings.kind,
                "of": list(below(settings)),
                **_gain(values.get(name, {}), others, trial.far),
                "ms": total_ms(stages, name, ms) if name in ms else None,
                "own_ms": ms.get(name),
                "trained_on": trial.taught.get(name, 0),
                "kept": name in kept,
            }
        )
    first = [by_query for by_query in list(values.values())[:1] if by_query]
    return {
        "measure": trial.measure,
        "answer": selected.answer,
        "budget": trial.budget,
        "judged": trial.judged,
        "queries": len(nested),
        "parts": trial.parts,
        "drawn": trial.drawn,
        "nested": _gain(nested, first, trial.far),
        "stages": rows,
        "values": {name: dict(by_query) for name, by_query in values.items()} | {"nested": dict(nested)},
        "inner": {part: {name: dict(own) for name, own in of.items()} for part, of in selected.inner.items()},
        "tested": {part: list(query_ids) for part, query_ids in selected.tested.items()},
        "far_queries": sorted(trial.far),
    }


def _gain(values: Values, others: Sequence[Values], far: Collection[str]) -> Gain:
    """The mean, and the gain over the best of `others`: its error, interval and p-value, and that on far queries."""
    mean, se = mean_and_error(list(values.values())) if values else (math.nan, math.nan)
    gain = gain_se = low = high = p = far_gain = far_low = far_high = math.nan
    if values and others:
        best = max(others, key=lambda by_query: fmean(by_query.values()))
        differences = {query_id: value - best[query_id] for query_id, value in values.items()}
        gain, gain_se = mean_and_error(list(differences.values()))
        low, high = _interval(list(differences.values()))
        p = paired_test(list(values.values()), [best[query_id] for query_id in values])
        on_far = [difference for query_id, difference in differences.items() if query_id in far]
        far_gain = fmean(on_far) if on_far else math.nan
        far_low, far_high = _interval(on_far)
    return {
        "mean": _number(mean),
        "se": _number(se),
        "gain": _number(gain),
        "gain_se": _number(gain_se),
        "low": _number(low),
        "high": _number(high),
        "p": _number(p),
        "far": _number(far_gain),
        "far_low": _number(far_low),
        "far_high": _number(far_high),
    }


def _interval(differences: Sequence[float]) -> tuple[float, float]:
    (interval,) = bootstrap_intervals([differences])
    return interval


def total_ms(stages: Mapping[str, Stage], name: str, ms: Mapping[str, float]) -> float:
    """The milliseconds of a query up to a stage: its own and those of the stages that it needs."""
    return sum(ms.get(needed, 0.0) for needed in prefix(stages, name))


def _number(value: float) -> float | None:
    """The value; None for NaN, which JSON does not have."""
    return None if math.isnan(value) else value
