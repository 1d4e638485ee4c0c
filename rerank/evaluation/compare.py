"""Compares runs on several measures: `compare` returns a `Comparison` that prints itself as a table."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from rerank.data.types import Fold, Qrels, Run
from rerank.evaluation.evaluate_runs import Evaluation, check_run, evaluate_runs, map_to_folds, select_queries
from rerank.evaluation.measures import DEFAULT_MEASURES
from rerank.evaluation.run_comparison import RunComparison, compare_measurements
from rerank.evaluation.significance import CORRECTIONS, TESTS
from rerank.evaluation.tables.comparisons import details_table, summary_table
from rerank.evaluation.tables.table import Table, render
from rerank.utils.errors import UserError, nearest
from rerank.utils.plugins import load_plugins


@dataclass(frozen=True)
class Comparison:
    """Runs compared with a baseline, or without one with the best run on each measure.

    `str()` gives the summary table as text; a notebook shows it as Markdown. Raises UserError if no run is called
    `baseline`, or `test` or `correction` is unknown.
    """

    evaluation: Evaluation
    baseline: str | None = None
    test: str = "t"
    correction: str = "bonferroni"

    def __post_init__(self) -> None:
        load_plugins()
        for argument, value, valid in (
            ("baseline", self.baseline, self.evaluation.measurements),
            ("test", self.test, TESTS),
            ("correction", self.correction, CORRECTIONS),
        ):
            if value is not None and value not in valid:
                kind = "run" if argument == "baseline" else argument
                raise UserError(f"{argument} {value}: no such {kind}; {nearest(value, valid)}")

    def __str__(self) -> str:
        return render(self.table()).removesuffix("\n")

    def details(self) -> str:
        """Intervals, differences, p-values and wins, as text."""
        return render(self.table(details=True)).removesuffix("\n")

    def _repr_markdown_(self) -> str:
        """The summary table, as a notebook shows it."""
        return self.to_markdown()

    def to_markdown(self, details: bool = False) -> str:
        """The summary table, or that of all details, in Markdown."""
        return render(self.table(details), "markdown")

    def to_latex(self, details: bool = False) -> str:
        """The summary table, or that of all details, in LaTeX; needs the packages booktabs and graphicx."""
        return render(self.table(details), "latex")

    def to_csv(self, per_query: bool = False) -> str:
        """All details, or the value of every query, as CSV with a header and every digit; None is an empty field."""
        records, out = self.records(per_query), io.StringIO()
        writer = csv.DictWriter(out, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return out.getvalue()

    def to_json(self, per_query: bool = False) -> str:
        """All details, or the value of every query, as a JSON object with the notes."""
        facts: dict[str, Any] = {"notes": self.evaluation.notes}
        if per_query:
            facts["values"] = self.records(per_query)
        else:
            facts |= {"test": self.test, "correction": self.correction, "comparisons": self.records()}
        return json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def records(self, per_query: bool = False) -> list[dict[str, Any]]:
        """All details as one dictionary per run and measure, or the values as one per query, run and measure.

        NaN becomes None, and so does a fold that is unknown.
        """
        if per_query:
            fold_of = self.evaluation.queries.fold_of
            return [
                {"query_id": query, "fold": fold_of.get(query), "run": run, "measure": measure, "value": value}
                for run, of_run in self.evaluation.measurements.items()
                for measure, values in of_run.items()
                for query, value in values.items()
            ]
        records = [asdict(row) for rows in self._with_intervals.values() for row in rows]
        return [{key: None if value != value else value for key, value in record.items()} for record in records]

    def table(self, details: bool = False) -> Table:
        """The summary table, or that of all details, to be rendered."""
        comparisons, view = (self._with_intervals, details_table) if details else (self.rows, summary_table)
        over, notes = self.evaluation.queries.averaged_over, self.evaluation.notes
        return view(comparisons, over, notes, self.baseline, self.test, self.correction)

    @cached_property
    def rows(self) -> dict[str, list[RunComparison]]:
        """Measure -> the comparison of each run, without bootstrap intervals."""
        return self._compare(intervals=False)

    @cached_property
    def _with_intervals(self) -> dict[str, list[RunComparison]]:
        return self._compare(intervals=True)

    def _compare(self, intervals: bool) -> dict[str, list[RunComparison]]:
        measurements, folds = self.evaluation.measurements, self.evaluation.queries.fold_queries
        return compare_measurements(measurements, folds, self.baseline, self.test, self.correction, intervals)


def compare(
    runs: Mapping[str, Run],
    qrels: Qrels,
    measures: Iterable[str] = DEFAULT_MEASURES,
    *,
    folds: Sequence[Fold] | None = None,
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
) -> Comparison:
    """Compares runs (name -> run) on the judged queries.

    With `folds`, means and standard errors are over the means of the folds' test queries; tests are always paired over
    the queries. `test` is one of TESTS, `correction` one of CORRECTIONS in `rerank.evaluation.significance`. Raises
    UserError if there is no run, a run has none of the queries or none of a fold, judged queries are in no fold or in
    two, a measure, the test or the correction is unknown, or no run is called `baseline`.

    >>> qrels = {"q1": {"d1": 1}, "q2": {"d3": 1}, "q3": {"d1": 1}}
    >>> bm25 = {"q1": {"d1": 1.0, "d2": 2.0}, "q2": {"d3": 2.0, "d4": 1.0}, "q3": {"d2": 2.0, "d1": 1.0}}
    >>> ours = {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d3": 2.0, "d4": 1.0}, "q3": {"d2": 1.0, "d1": 2.0}}
    >>> print(compare({"bm25": bm25, "ours": ours}, qrels, ["AP", "P@1"]))
    Mean ± standard error over 3 queries
    <BLANKLINE>
    run   AP                P@1
    bm25  0.6667 ± 0.1667   0.3333 ± 0.3333
    ours  1.0000 ± 0.0000*  1.0000 ± 0.0000*
    <BLANKLINE>
    *: best. †: worse than the best (two-sided paired t-test over the queries, p < 0.05).
    Every run has every query.
    """
    if not runs:
        raise UserError("compare: expected at least one run, got none")
    queries = select_queries(qrels, map_to_folds(folds or ()))
    for name, run in runs.items():
        check_run(name, run, queries)
    return Comparison(evaluate_runs(runs, qrels, queries, measures), baseline, test, correction)
