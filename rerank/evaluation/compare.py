"""Compares runs on several measures: `compare` returns a `Comparison`, which prints as a table."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from rerank.data.given import given_qrels, given_run
from rerank.data.trec import check_common, examples
from rerank.data.types import Fold, Measurements, Qrels, Run
from rerank.evaluation.evaluate import evaluate, missing_queries
from rerank.evaluation.measures import DEFAULT_MEASURES, measure_names
from rerank.evaluation.other_ids import note_on_other_ids
from rerank.evaluation.run_comparison import (
    ComparisonSettings,
    RunComparison,
    compare_measurements,
    details_table,
    summary_table,
)
from rerank.evaluation.significance import CORRECTIONS, TESTS
from rerank.evaluation.tables import Table, render
from rerank.utils.errors import UserError, nearest
from rerank.utils.texts import check_name, counted


@dataclass(frozen=True)
class JudgedQueries:
    """The judgments of the queries that are evaluated.

    `fold_queries` has the query ids of each fold, for means over folds; it is empty for a mean over queries. `fold_of`
    maps query_id to fold. `fold` is the name of the fold, if only one is evaluated.
    """

    qrels: Qrels
    fold_queries: list[list[str]]
    fold_of: Mapping[str, str]
    fold: str | None = None

    @property
    def averaged_over(self) -> str:
        """The units of the means, such as "5 folds, 249 queries"."""
        folds = f"{len(self.fold_queries)} folds, " if self.fold_queries else ""
        return f"{folds}{counted(len(self.qrels), 'query')}" + (f" of fold {self.fold}" if self.fold else "")


@dataclass(frozen=True)
class Comparison:
    """Runs compared with a baseline, or with the best run on each measure; `compare` makes one.

    `measurements` maps run -> measure -> query_id -> value, for the same queries in all runs; `notes` name missing and
    excluded queries. `str()` gives the summary table as text; a notebook shows it as Markdown. Raises UserError if no
    run is called `baseline`, or `test` or `correction` is unknown.

    >>> comparison = compare({"bm25": {"q1": {"d1": 1.0}}}, {"q1": {"d1": 1}}, ["RR"])
    >>> comparison.measurements
    {'bm25': {'RR': {'q1': 1.0}}}
    >>> print(comparison.to_csv(per_query=True))
    query_id,fold,run,measure,value
    q1,,bm25,RR,1.0
    <BLANKLINE>
    """

    measurements: dict[str, Measurements]
    queries: JudgedQueries
    notes: list[str]
    baseline: str | None = None
    test: str = "t"
    correction: str = "bonferroni"

    def __post_init__(self) -> None:
        for argument, kind, value, valid in (
            ("baseline", "run", self.baseline, self.measurements),
            ("test", "test", self.test, TESTS),
            ("correction", "correction", self.correction, CORRECTIONS),
        ):
            if argument == "baseline" and value is None:
                continue
            name = check_name(argument, value)
            if name not in valid:
                raise UserError(f"{argument} {name}: no such {kind}; {nearest(name, valid)}")

    def __str__(self) -> str:
        return render(self.table()).removesuffix("\n")

    def details(self) -> str:
        """The table of details as text: intervals, differences, p-values and wins."""
        return render(self.table(details=True)).removesuffix("\n")

    def to_markdown(self, details: bool = False) -> str:
        """The summary table, or the table of details, in Markdown."""
        return render(self.table(details), "markdown")

    _repr_markdown_ = to_markdown

    def to_latex(self, details: bool = False) -> str:
        """The summary table, or the table of details, in LaTeX; needs the packages booktabs and graphicx."""
        return render(self.table(details), "latex")

    def to_csv(self, per_query: bool = False) -> str:
        """All details, or the value of every query, as CSV with a header and all digits; None is an empty field."""
        records, out = self.records(per_query), io.StringIO()
        writer = csv.DictWriter(out, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        return out.getvalue()

    def to_json(self, per_query: bool = False) -> str:
        """All details, or the value of every query, as a JSON object with the notes."""
        facts: dict[str, object] = {"notes": self.notes}
        if per_query:
            facts["values"] = self.records(per_query)
        else:
            facts |= {"test": self.test, "correction": self.correction, "comparisons": self.records()}
        return json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def records(self, per_query: bool = False) -> list[dict[str, object]]:
        """All details as one dictionary per run and measure, or the values as one per query, run and measure.

        NaN and an unknown fold become None.
        """
        if per_query:
            fold_of = self.queries.fold_of
            return [
                {"query_id": query, "fold": fold_of.get(query), "run": run, "measure": measure, "value": value}
                for run, measured_values in self.measurements.items()
                for measure, values in measured_values.items()
                for query, value in values.items()
            ]
        records = [asdict(row) for rows in self.rows(intervals=True).values() for row in rows]
        return [{key: None if value != value else value for key, value in record.items()} for record in records]

    def table(self, details: bool = False) -> Table:
        """The summary table, or the table of details, for `render`."""
        make_table = details_table if details else summary_table
        return make_table(self.rows(details), self.queries.averaged_over, self.notes, self._settings)

    def rows(self, intervals: bool = False) -> dict[str, list[RunComparison]]:
        """Measure -> comparison of each run; `intervals` adds bootstrap intervals, which take a second or two."""
        return compare_measurements(self.measurements, self.queries.fold_queries, self._settings, intervals)

    @property
    def _settings(self) -> ComparisonSettings:
        return ComparisonSettings(self.baseline, self.test, self.correction)


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
    UserError if there is no run or no measure, a run has none of the queries or none of a fold, or a judged query is in
    no fold or in two. Raises UserError for an unknown measure, test, correction or baseline.

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
    if not isinstance(runs, Mapping):
        raise TypeError(f"runs: expected {{name: run}}, got {type(runs).__name__}")
    if not runs:
        raise UserError("compare: expected at least one run, got none")
    runs = {check_name("name of a run", name): given_run(run, f"run {name}") for name, run in runs.items()}
    if folds is not None and not (isinstance(folds, Sequence) and all(isinstance(fold, Fold) for fold in folds)):
        raise TypeError(f"folds: expected a sequence of Fold, got {folds!r:.80}")
    qrels = given_qrels(qrels)
    queries = select_queries(qrels, map_to_folds(folds or ()))
    if not (names := measure_names(measures)):
        raise UserError("compare: expected at least one measure, got none")
    comparison = compare_queries(runs, qrels, queries, names)
    return replace(comparison, baseline=baseline, test=test, correction=correction)


def map_to_folds(folds: Iterable[Fold], source: str = "folds") -> dict[str, str]:
    """query_id -> name of the fold that tests it; raises UserError with `source` if two folds test a query."""
    fold_of: dict[str, str] = {}
    for fold in folds:
        for query_id in fold.test:
            if (other := fold_of.setdefault(query_id, fold.name)) != fold.name:
                raise UserError(f"{source}: folds {other} and {fold.name} both test query {query_id}, expected one")
    return fold_of


def select_queries(
    qrels: Qrels, fold_of: Mapping[str, str], fold: str | None = None, source: str = "folds"
) -> JudgedQueries:
    """The judged queries of all folds, or of `fold`.

    `fold_of` maps query_id to fold; `source` names its origin in messages. Raises UserError for an unknown fold, and if
    a judged query is in none of several folds.
    """
    judged = {query_id: judgments for query_id, judgments in qrels.items() if judgments}
    names = list(dict.fromkeys(fold_of.values()))
    if fold:
        if fold not in names:
            valid = f"one of {', '.join(names)}" if names else "--folds FILE, or fold numbers in the names of the runs"
            raise UserError(f"fold {fold}: no such fold; expected {valid}")
        return JudgedQueries({q: judged[q] for q in judged if fold_of.get(q) == fold}, [], fold_of, fold)
    all_folds = ([query_id for query_id in judged if fold_of.get(query_id) == name] for name in names)
    fold_queries = [query_ids for query_ids in all_folds if query_ids]
    if len(fold_queries) < 2:
        return JudgedQueries(judged, [], fold_of)
    if outside := [query_id for query_id in judged if query_id not in fold_of]:
        raise UserError(
            f"{source}: {len(outside)} of {len(judged)} judged queries are in no fold ({examples(outside)}), so there "
            "is no mean over folds; expected folds with all of them, judgments of only the folds' queries, or one fold"
        )
    return JudgedQueries({q: judged[q] for query_ids in fold_queries for q in query_ids}, fold_queries, fold_of)


def compare_queries(
    runs: Mapping[str, Run], qrels: Qrels, queries: JudgedQueries, measures: Sequence[str], source: str = "judgments"
) -> Comparison:
    """The comparison of all runs on the same queries, with the best run on each measure.

    `qrels` has all judgments, for the notes, and `source` names them. Raises UserError if a run has none of the
    queries, or none of a whole fold, because means are then not comparable.
    """
    for name, run in runs.items():
        check_common(run, queries.qrels, name, f"{source} (fold {queries.fold})" if queries.fold else source)
        fold_queries = {queries.fold_of[query_ids[0]]: query_ids for query_ids in queries.fold_queries}
        if missing := [fold for fold, query_ids in fold_queries.items() if run.keys().isdisjoint(query_ids)]:
            found = Counter(queries.fold_of[query_id] for query_id in run if query_id in queries.fold_of)
            raise UserError(
                f"{name}: no query of fold {', '.join(missing)}; expected a run of all {len(fold_queries)} folds, "
                f"or only the queries of one fold (`--fold {found.most_common(1)[0][0]}`)"
            )
    measurements = {name: evaluate(queries.qrels, run, measures) for name, run in runs.items()}
    lacking = {name: missing_queries(queries.qrels, run) for name, run in runs.items()}
    notes = [
        f"{name}: {len(query_ids)} of {len(queries.qrels)} queries are missing and count 0: {examples(query_ids)}."
        for name, query_ids in lacking.items()
        if query_ids
    ] or ["Every run has every query."]
    notes += [note for name, run in runs.items() if (note := note_on_other_ids(name, run, queries.qrels))]
    if unjudged := dict.fromkeys(query_id for run in runs.values() for query_id in run if not qrels.get(query_id)):
        what = "Queries of the runs without judgments, which cannot count"
        notes.append(f"{what} ({len(unjudged)}): {examples(unjudged)}.")
    return Comparison(measurements, queries, notes)
