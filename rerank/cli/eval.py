"""The flags of `rerank eval`."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.errors import UserError


def evaluate(
    *runs: Path,
    qrels: Path | None = None,
    folds: Path | None = None,
    fold: str | None = None,
    measures: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=())] = (),
    interpolate: Path | None = None,
    tune_on: str = "nDCG@20",
    baseline: str | None = None,
    test: Literal["t", "wilcoxon", "randomisation"] = "t",
    correction: Literal["bonferroni", "holm", "none"] = "bonferroni",
    details: Annotated[bool, Parameter(negative=())] = False,
    per_query: Annotated[bool, Parameter(negative=())] = False,
    format: Literal["text", "markdown", "latex", "csv", "json"] | None = None,  # noqa: A002
) -> None:
    """Prints the paper's table of runs: mean ± standard error, the best, and a dagger on what is worse than the best.

    Parameters
    ----------
    runs
        TREC runs, .gz or not; files that differ only in their fold's number are one run.
    qrels
        The judgments; those kept in runs/<collection> where none are given.
    folds
        The folds.json to average over; that in runs/<collection> where none is given.
    fold
        Only the test queries of this fold.
    measures
        trec_eval's names or ir_measures', such as ndcg_cut_20 or nDCG@20; the paper's where none are given.
    interpolate
        The first stage's run: below every other run, a row of both mixed, by weights tuned on validation topics.
    tune_on
        The measure that chooses the weights.
    baseline
        The run to compare with, as the table calls it; the best of each measure where none is given.
    test
        The paired test over the topics.
    correction
        For the number of runs that are compared, by each measure.
    details
        Intervals, differences, effect sizes, p-values, wins, and what this many topics could have shown.
    per_query
        The value of every topic instead of a table, as CSV or JSON.
    format
        How the table is written (text); CSV and JSON have every comparison in full.
    """
    form = format or ("csv" if per_query else "text")
    if per_query and form not in ("csv", "json"):
        raise UserError(f"--per-query: expected --format csv or json, got {form}")
    from rerank.runs.table import measure_files, table_of

    measured = measure_files(list(runs), qrels, folds, fold, list(measures) or None, interpolate, tune_on)
    print(table_of(measured, baseline, test, correction, details, per_query, form).removesuffix("\n"))
