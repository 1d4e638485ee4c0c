"""The evidence of a pipeline as a table, and its limits in one line."""

import math
from dataclasses import dataclass
from statistics import median

from rerank.evaluation.tables import Table, cells, format_mean, render
from rerank.pipelines.crossfit import FEWEST
from rerank.pipelines.record import EvidenceRecord, Gain

LEGEND = (
    "Means ± standard errors over held-out queries; `nested` also excludes the queries used for selection.",
    "Gain over the best of the stages below (for `nested`, over the first stage), with its 95 % bootstrap interval and "
    "the p-value of a paired t-test.",
)
DRAWN = "Parts are drawn at random: the means hold for queries like the judged ones."
GIVEN = "Parts are the folds of the collection: the means hold for queries like its test queries."
FAR = (
    "far: the gain on the third of the queries least similar to the training queries, as to be expected for new "
    "topics. p is not corrected for the number of stages."
)
NORMAL = 1.96
"""Standard errors from the mean to the ends of a 95 % interval."""


@dataclass(frozen=True)
class Evidence:
    """The gain of each stage of a fitted pipeline; `record` is the content of its evidence.json.

    `print` shows the table of `rerank fit`; a notebook shows it as Markdown.
    """

    record: EvidenceRecord

    def __str__(self) -> str:
        return render(as_table(self.record)).removesuffix("\n")

    def to_markdown(self) -> str:
        """The table in Markdown."""
        return render(as_table(self.record), "markdown")

    _repr_markdown_ = to_markdown


def as_table(record: EvidenceRecord) -> Table:
    """An evidence as a table of two blocks: the gains; the gains on far queries, times and judged queries."""
    gains = [cells(["stage", "of", record["measure"], "gain", "95 % interval", "p"])]
    others = [cells(["stage", "far", "95 % interval", "ms", "trained on", ""])]
    for row in record["stages"]:
        state = "answers" if row["name"] == record["answer"] else "" if row["kept"] else "left out"
        shown = row["name"] if row["name"] == row["kind"] else f"{row['name']} ({row['kind']})"
        ms = "" if row["ms"] is None else f"{row['ms']:.1f}"
        names = ", ".join(row["of"]) if len(row["of"]) <= 3 else f"{len(row['of'])} stages"
        gains.append(cells([shown, names, *_gain(row)]))
        others.append(cells([row["name"], *_far(row), ms, str(row["trained_on"] or ""), state]))
    notes = []
    if record["budget"] is not None:
        notes.append(f"Chosen among the stages that answer within {record['budget']:g} ms.")
    if record.get("older_documents"):
        notes.append("Measured before `rerank update` took in the present documents.")
    if record["nested"]["mean"] is None:
        return Table("", [gains, others], ("No judgments: nothing was learned or measured.", *notes))
    gains.append(cells(["nested", "", *_gain(record["nested"])]))
    others.append(cells(["nested", *_far(record["nested"]), "", "", ""]))
    legend = (*LEGEND, DRAWN if record["drawn"] else GIVEN, FAR)
    return Table(f"{record['queries']} queries", [gains, others], (*legend, *notes))


def limits(record: EvidenceRecord) -> str:
    """The limits of an evidence in one line: the differences that it has too few judgments to show.

    They are below 1.96 standard errors of a gain, the median over the stages.
    """
    if record["nested"]["mean"] is None:
        judged = f"{record['judged']} judged queries" if record["judged"] else "no judged queries"
        return f"{judged}: the gains of the stages, and the best stage, are unknown; expected {FEWEST} or more"
    size = f"{record['queries'] / record['parts']:.0f} queries a part"
    if record["parts"] == 1:
        size = f"{record['queries']} test queries"
    errors = [row["gain_se"] for row in record["stages"] if row["gain_se"]]
    if not errors:
        return f"{size}: no stage differs from the stages below it"
    return f"{size}: differences below {NORMAL * median(errors):.1g} cannot be told from chance"


def _gain(row: Gain) -> tuple[str, str, str, str]:
    """A row's mean, gain, interval and p-value."""
    mean = "" if row["mean"] is None else format_mean(row["mean"], math.nan if row["se"] is None else row["se"])
    p = "" if row["p"] is None else "<0.0001" if row["p"] < 0.0001 else f"{row['p']:.4f}"
    return mean, _signed(row["gain"]), _interval(row["low"], row["high"]), p


def _far(row: Gain) -> tuple[str, str]:
    """A row's gain on far queries, and its interval."""
    return _signed(row["far"]), _interval(row["far_low"], row["far_high"])


def _signed(gain: float | None) -> str:
    return "" if gain is None else f"{gain:+.4f}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{low:+.4f}, {high:+.4f}]"
