"""What each stage is worth, on queries that it did not learn from: the record that `fit` writes."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rerank.data.runs import read_run
from rerank.evaluation.evaluate import values_of
from rerank.evaluation.significance import bootstrap_intervals, mean_and_error, paired_test
from rerank.evaluation.tables import render
from rerank.evaluation.weights import Values
from rerank.pipelines.evidence_table import as_table
from rerank.pipelines.folder import RUNS, load_fitted, read_evidence
from rerank.pipelines.graph import prefix
from rerank.pipelines.selection import Selected
from rerank.pipelines.stages.base import Stage, below


@dataclass(frozen=True)
class Trial:
    """How the stages were measured.

    `judged` are all judged queries, `parts` the parts whose queries test, `drawn` says whether they were drawn at
    random. `far` are the tested queries that are least like any query of another part. `taught` is name of the stage ->
    the mean number of queries that taught it. `budget` are the milliseconds that a query may take, if they are bounded.
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
) -> dict[str, Any]:
    """The record of what the stages of a pipeline are worth, as JSON has it.

    `ms` are the milliseconds that each stage alone takes for a query.
    """
    values, nested = selected.values, selected.nested
    kept = prefix(stages, selected.answer)
    rows = []
    for name, settings in stages.items():
        own = values.get(name, {})
        row: dict[str, Any] = {"name": name, "kind": settings.kind, "of": list(below(settings))}
        row |= _mean(own) | _gain(own, [values[one] for one in below(settings) if values.get(one)], trial.far)
        row |= {"ms": total_ms(stages, name, ms) if name in ms else None, "own_ms": ms.get(name)}
        rows.append(row | {"trained_on": trial.taught.get(name, 0), "kept": name in kept})
    first = [of for of in list(values.values())[:1] if of]
    return {
        "measure": trial.measure,
        "answer": selected.answer,
        "budget": trial.budget,
        "judged": trial.judged,
        "queries": len(nested),
        "parts": trial.parts,
        "drawn": trial.drawn,
        "nested": _mean(nested) | _gain(nested, first, trial.far),
        "stages": rows,
        "values": {name: dict(of) for name, of in values.items()} | {"nested": dict(nested)},
    }


def _gain(values: Values, others: Sequence[Values], far: Collection[str]) -> dict[str, float | None]:
    """The mean difference to the best of some stages, with its error, interval and p-value, and that on far queries."""
    names = ("gain", "gain_se", "low", "high", "p", "far", "far_low", "far_high")
    if not values or not others:
        return dict.fromkeys(names)
    best = max(others, key=lambda of: fmean(of.values()))
    differences = {query_id: value - best[query_id] for query_id, value in values.items()}
    gain, error = mean_and_error(list(differences.values()))
    p = paired_test(list(values.values()), [best[query_id] for query_id in values])
    of_far = [difference for query_id, difference in differences.items() if query_id in far]
    far_gain = fmean(of_far) if of_far else math.nan
    found = gain, error, *_interval(list(differences.values())), p, far_gain, *_interval(of_far)
    return dict(zip(names, map(_number, found), strict=True))


def _interval(differences: Sequence[float]) -> tuple[float, float]:
    (interval,) = bootstrap_intervals([differences])
    return interval


def total_ms(stages: Mapping[str, Stage], name: str, ms: Mapping[str, float]) -> float:
    """The milliseconds of a query up to a stage: those of the stages that it needs, and its own."""
    return sum(ms.get(one, 0.0) for one in prefix(stages, name))


def _mean(values: Values) -> dict[str, float | None]:
    mean, se = mean_and_error(list(values.values())) if values else (math.nan, math.nan)
    return {"mean": _number(mean), "se": _number(se)}


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value


def verify_pipeline(folder: Path) -> tuple[str, bool]:
    """The evidence of a folder as text, and whether the runs of its stages still have these means.

    Raises UserError if a file, the documents or an encoder has changed.
    """
    fitted, record = load_fitted(folder), read_evidence(folder)
    qrels, differences = fitted.world.collection.qrels, []
    for row in record.get("stages", []):
        name, file = row["name"], folder / RUNS / f"{row['name']}.run"
        if row["mean"] is not None and file.is_file():
            values = values_of(read_run(file), qrels, list(record["values"][name]), record["measure"])
            mean = fmean(values.values()) if values else math.nan
            if not abs(mean - row["mean"]) < 1e-9:
                differences.append(f"{name}: its run has {mean:.4f}, the evidence has {row['mean']:.4f}\n")
    table = render(as_table(record)) if record else ""
    end = "".join(differences) or "Everything that is recorded holds.\n"
    return f"{table}\n{end}", not differences
