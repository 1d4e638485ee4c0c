"""rerank eval: compares runs."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.evaluation.significance import CORRECTIONS, TESTS
from rerank.evaluation.tables.table import render
from rerank.utils.errors import UserError
from rerank.utils.progress import log


def evaluate(
    *runs: Path,
    qrels: Path | None = None,
    folds: Path | None = None,
    fold: str | None = None,
    measures: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)] = (),
    baseline: str | None = None,
    test: Annotated[str, Parameter(choices=tuple(TESTS))] = "t",
    correction: Annotated[str, Parameter(choices=tuple(CORRECTIONS))] = "bonferroni",
    details: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    per_query: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    format: Literal["text", "markdown", "latex", "csv", "json"] | None = None,  # noqa: A002
) -> None:
    """Evaluate and compare runs: means, standard errors, significance tests.

    The judgments and the folds are those in runs/<collection>, if the runs are in it.

    Parameters
    ----------
    runs
        TREC run files, .gz or not. Files that differ only in the number of a fold are one run.
    qrels
        The file of judgments [default: the qrels.txt near the runs].
    folds
        The folds to average over [default: the folds.json near the runs].
    fold
        Evaluate only the test queries of this fold.
    measures
        Measures such as nDCG@20, AP or R@100; trec_eval's names work too [default: ten common ones].
    baseline
        The run to compare with, by its name in the table [default: the best run on each measure].
    test
        The paired significance test over the queries.
    correction
        The correction for the number of runs that are compared.
    details
        Print confidence intervals, differences, p-values, wins and losses.
    per_query
        Print the value of every query, as CSV or JSON.
    format
        The format of the table; CSV and JSON have all details [default: text].
    """
    form = format or ("csv" if per_query else "text")
    if per_query and form not in ("csv", "json"):
        raise UserError(f"--per-query: expected --format csv or json, got {form}")
    from rerank.runs.run_files import compare_files

    comparison = compare_files(runs, qrels, folds, fold, measures, baseline=baseline, test=test, correction=correction)
    if form == "csv":
        text = comparison.to_csv(per_query)
        for note in comparison.notes:  # on standard error: all lines of a CSV file are data
            log.info(note)
    elif form == "json":
        text = comparison.to_json(per_query)
    else:
        text = render(comparison.table(details), form)
    print(text.removesuffix("\n"))
