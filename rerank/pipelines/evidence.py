"""What each stage is worth, on queries that it did not learn from, and which one answers."""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rerank.data.runs import read_run
from rerank.evaluation.evaluate import values_of
from rerank.evaluation.significance import bootstrap_intervals, mean_and_error, paired_test
from rerank.evaluation.tables.table import Table, cells, format_mean, render
from rerank.evaluation.weights import Values, is_ahead
from rerank.pipelines.folder import RUNS, load_fitted, read_evidence
from rerank.pipelines.graph import prefix
from rerank.stages.base import Stage, below

LEGEND = (
    "Means ± standard errors over queries that taught the stage nothing, and that chose nothing for `nested`.",
    "Gain over the best of the stages below, with its 95 % bootstrap interval and the p-value of a paired t-test.",
)


def choose(values: Mapping[str, Values], costly: Collection[str] = ()) -> str:
    """The last stage, unless one of the others is ahead of it by more than 1.5 standard errors; then the best of these.

    `values` are name -> the values of its ranking by query, in the order of the stages; of equal stages the first is
    taken. The differences are those over the queries that both have. So chance does not choose among stages that are
    alike, as it does with the best mean of a few queries. A stage of `costly`, one with a cross-encoder, takes many
    times as long for a query: it is taken only if it is ahead of the best of the others.
    """
    cheap = {name: of for name, of in values.items() if name not in costly}
    chosen = next(iter(values))
    if cheap:
        last = list(cheap.values())[-1]
        good = {name: fmean(of.values()) for name, of in cheap.items() if of == last or is_ahead(of, last)}
        chosen = max(good, key=good.__getitem__)
    for name, of in values.items():
        if name in costly and is_ahead(of, values[chosen]):
            chosen = name
    return chosen


def evidence_of(
    measure: str,
    stages: Mapping[str, Stage],
    answer: str,
    ms: Mapping[str, float],
    budget: float | None,
    values: Mapping[str, Values],
    nested: Values,
    trained_on: int,
) -> dict[str, Any]:
    """The record of what the stages of a pipeline are worth, as JSON has it.

    `values` are name of the stage -> its values by query; `nested` has those of the stage that the other queries chose,
    {} without judgments. `ms` are the milliseconds that each stage alone takes for a query; `budget`, if there is one,
    was the most that a query may take.
    """
    rows = []
    for name, settings in stages.items():
        learned = trained_on if settings.learns != "nothing" else 0
        own = values.get(name, {})
        row: dict[str, Any] = {"name": name, "kind": settings.kind, "of": list(below(settings))}
        row |= _mean(own) | _gain(own, [values[one] for one in below(settings) if values.get(one)])
        row |= {"ms": total_ms(stages, name, ms) if name in ms else None, "own_ms": ms.get(name)}
        rows.append(row | {"trained_on": learned, "kept": name in prefix(stages, answer)})
    return {
        "measure": measure,
        "answer": answer,
        "budget": budget,
        "queries": len(nested),
        "nested": _mean(nested),
        "stages": rows,
        "values": {name: dict(of) for name, of in values.items()} | {"nested": dict(nested)},
    }


def _gain(values: Values, others: Sequence[Values]) -> dict[str, float | None]:
    """The mean difference to the best of the stages below, with its interval and p-value."""
    if not values or not others:
        return dict.fromkeys(("gain", "low", "high", "p"))
    best = max(others, key=lambda of: fmean(of.values()))
    differences = [value - best[query_id] for query_id, value in values.items()]
    ((low, high),) = bootstrap_intervals([differences])
    p = paired_test(list(values.values()), [best[query_id] for query_id in values])
    return {"gain": fmean(differences), "low": _number(low), "high": _number(high), "p": _number(p)}


def total_ms(stages: Mapping[str, Stage], name: str, ms: Mapping[str, float]) -> float:
    """The milliseconds of a query up to a stage: those of the stages that it needs, and its own."""
    return sum(ms.get(one, 0.0) for one in prefix(stages, name))


def as_table(record: Mapping[str, Any]) -> Table:
    """The record of an evidence as a table."""
    rows = [cells(["stage", "of", record["measure"], "gain", "95 % interval", "p", "ms", "trained on", ""])]
    for row in record["stages"]:
        gain, interval, p = "", "", ""
        if row["gain"] is not None:
            gain = f"{row['gain']:+.4f}"
            p = "" if row["p"] is None else "<0.0001" if row["p"] < 0.0001 else f"{row['p']:.4f}"
            interval = "" if row["low"] is None else f"[{row['low']:+.4f}, {row['high']:+.4f}]"
        state = "answers" if row["name"] == record["answer"] else "" if row["kept"] else "left out"
        shown = row["name"] if row["name"] == row["kind"] else f"{row['name']} ({row['kind']})"
        ms = "" if row["ms"] is None else f"{row['ms']:.1f}"
        of = ", ".join(row["of"]) if len(row["of"]) <= 3 else f"{len(row['of'])} stages"
        mean, trained = _shown(row["mean"], row["se"]), str(row["trained_on"] or "")
        rows.append(cells([shown, of, mean, gain, interval, p, ms, trained, state]))
    notes = []
    if record["budget"] is not None:
        notes.append(f"Chosen among the stages that answer within {record['budget']:g} ms.")
    if record.get("older_documents"):
        notes.append("Measured on older documents: `rerank update` has taken in those of now.")
    if record["nested"]["mean"] is None:
        return Table("", [rows], ("No judgments: nothing was learned or measured.", *notes))
    rows.append(cells(["nested", "", _shown(record["nested"]["mean"], record["nested"]["se"]), *[""] * 6]))
    return Table(f"{record['queries']} queries", [rows], (*LEGEND, *notes))


def _shown(mean: float | None, se: float | None) -> str:
    return "" if mean is None else format_mean(mean, math.nan if se is None else se)


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
