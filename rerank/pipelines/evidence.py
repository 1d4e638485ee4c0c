"""The evidence of a fitted pipeline: what each stage is worth, on queries that it did not learn from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rerank.evaluation.significance import bootstrap_intervals, mean_and_error, paired_test
from rerank.evaluation.tables.table import Table, cells, format_mean, render
from rerank.evaluation.weights import Values
from rerank.pipelines.graph import prefix
from rerank.stages.base import Stage, below

LEGEND = (
    "Means ± standard errors over queries that taught the stage nothing, and that chose nothing for `nested`.",
    "Gain over the best of the stages below, with its 95 % bootstrap interval and the p-value of a paired t-test.",
)


@dataclass(frozen=True)
class Evidence:
    """What the stages of a pipeline are worth.

    `values` are name of the stage -> its values by query; `nested` has those of the stage that the other queries chose,
    {} without judgments. `ms` are the milliseconds that each stage alone takes for a query; `budget`, if there is one,
    was the most that a query may take.
    """

    measure: str
    stages: Mapping[str, Stage]
    answer: str
    kept: tuple[str, ...]
    values: Mapping[str, Values]
    nested: Values
    trained_on: int
    ms: Mapping[str, float]
    budget: float | None = None

    def record(self) -> dict[str, Any]:
        """The evidence as JSON has it."""
        mean, se = _mean(self.nested)
        return {
            "measure": self.measure,
            "answer": self.answer,
            "budget": self.budget,
            "queries": len(self.nested),
            "nested": {"mean": mean, "se": se},
            "stages": [self._row(name) for name in self.stages],
            "values": {name: dict(of) for name, of in self.values.items()} | {"nested": dict(self.nested)},
        }

    def _row(self, name: str) -> dict[str, Any]:
        of = self.values.get(name, {})
        mean, se = _mean(of)
        row: dict[str, Any] = {
            "name": name,
            "kind": self.stages[name].kind,
            "of": list(below(self.stages[name])),
            "mean": mean,
            "se": se,
            **dict.fromkeys(("gain", "low", "high", "p")),
            "ms": total_ms(self.stages, name, self.ms) if name in self.ms else None,
            "own_ms": self.ms.get(name),
            "trained_on": self.trained_on if self.stages[name].learns != "nothing" else 0,
            "kept": name in self.kept,
        }
        names = [one for one in below(self.stages[name]) if self.values.get(one)]
        if of and names:
            best = max((self.values[one] for one in names), key=lambda values: fmean(values.values()))
            differences = [value - best[query_id] for query_id, value in of.items()]
            ((low, high),) = bootstrap_intervals([differences])
            p = paired_test(list(of.values()), [best[query_id] for query_id in of])
            row |= {"gain": fmean(differences), "low": _number(low), "high": _number(high), "p": _number(p)}
        return row


def total_ms(stages: Mapping[str, Stage], name: str, ms: Mapping[str, float]) -> float:
    """The milliseconds of a query up to a stage: those of the stages that it needs, and its own."""
    return sum(ms.get(one, 0.0) for one in prefix(stages, name))


def evidence_table(record: Mapping[str, Any]) -> str:
    """The record of an evidence as text."""
    return render(as_table(record))


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
        trained = str(row["trained_on"] or "")
        rows.append(
            cells([shown, ", ".join(row["of"]), _shown(row["mean"], row["se"]), gain, interval, p, ms, trained, state])
        )
    budget = record.get("budget")
    notes = []
    if budget is not None:
        notes.append(f"Chosen among the stages that answer within {budget:g} ms.")
    if record.get("older_documents"):
        notes.append("Measured on older documents: `rerank update` has taken in those of now.")
    if record["nested"]["mean"] is None:
        return Table("", [rows], ("No judgments: nothing was learned or measured.", *notes))
    rows.append(cells(["nested", "", _shown(record["nested"]["mean"], record["nested"]["se"]), *[""] * 6]))
    return Table(f"{record['queries']} queries", [rows], (*LEGEND, *notes))


def _shown(mean: float | None, se: float | None) -> str:
    return "" if mean is None else format_mean(mean, math.nan if se is None else se)


def _mean(values: Values) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    mean, se = mean_and_error(list(values.values()))
    return mean, _number(se)


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value
