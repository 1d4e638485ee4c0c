"""`rerank eval`: compares runs."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.evaluation.significance import CORRECTIONS, TESTS
from rerank.evaluation.tables import render
from rerank.utils.errors import UserError
from rerank.utils.progress import log


@Parameter(name="*")
@dataclass(frozen=True)
class EvalOptions:
    """The judgments, the folds, the measures, the tests and the format of the table."""

    qrels: Path | None = None
    """The file of judgments [default: the qrels.txt near the runs]."""
    folds: Path | None = None
    """The folds to average over [default: the folds.json near the runs]."""
    fold: str | None = None
    """Evaluate only the test queries of this fold."""
    measures: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=(), show_default=False)] = ()
    """Measures such as nDCG@20, AP or R@100; trec_eval's names work too [default: ten common ones]."""
    baseline: str | None = None
    """The run to compare with, by its name in the table [default: the best run on each measure]."""
    test: Annotated[str, Parameter(choices=tuple(TESTS))] = "t"
    """The paired significance test over the queries."""
    correction: Annotated[str, Parameter(choices=tuple(CORRECTIONS))] = "bonferroni"
    """The correction for the number of runs that are compared."""
    details: Annotated[bool, Parameter(negative=(), show_default=False)] = False
    """Print confidence intervals, differences, p-values, wins and losses."""
    per_query: Annotated[bool, Parameter(negative=(), show_default=False)] = False
    """Print the value of every query, as CSV or JSON."""
    format: Literal["text", "markdown", "latex", "csv", "json"] | None = None
    """The format of the table; CSV and JSON have all details [default: text]."""


def evaluate(*runs: Path, options: EvalOptions = EvalOptions()) -> None:
    """Evaluate and compare runs: means, standard errors, significance tests.

    If the runs are in runs/<collection>, its judgments and folds are used.

    Parameters
    ----------
    runs
        TREC run files, .gz or not. Files that differ only in the number of a fold are one run.
    """
    form = options.format or ("csv" if options.per_query else "text")
    if options.per_query and form not in ("csv", "json"):
        raise UserError(f"--per-query: expected --format csv or json, got {form}")
    from rerank.experiments.runs.run_files import compare_files

    comparison = replace(
        compare_files(runs, options.qrels, options.folds, options.fold, options.measures),
        baseline=options.baseline,
        test=options.test,
        correction=options.correction,
    )
    if form == "csv":
        text = comparison.to_csv(options.per_query)
        for note in comparison.notes:  # on standard error: all lines of a CSV file are data
            log.info(note)
    elif form == "json":
        text = comparison.to_json(options.per_query)
    else:
        text = render(comparison.table(options.details), form)
    print(text.removesuffix("\n"))
