"""`rerank eval`: compares runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from rerank.evaluation.significance import CORRECTIONS, TESTS
from rerank.evaluation.tables import render
from rerank.utils.errors import UserError
from rerank.utils.parameters import FilePath, OptionalPath
from rerank.utils.progress import log

if TYPE_CHECKING:
    from rerank.evaluation.compare import Comparison


@Parameter(name="*")
@dataclass(frozen=True)
class EvalOptions:
    """The judgments, the folds, the measures, the tests and the format of the table."""

    qrels: OptionalPath = None
    """The file of judgments [default: the qrels.txt near the runs, or the judgments of the pipeline's collection]."""
    queries: OptionalPath = None
    """For a pipeline: a file of queries to rank [default: those of its collection]."""
    judged_queries_only: Annotated[bool, Parameter(negative=(), show_default=False)] = False
    """Leave out the judged queries that a run lacks, as trec_eval does without -c [default: they count 0]."""
    folds: OptionalPath = None
    """The folds to average over [default: the folds.json near the runs]."""
    fold: str | None = None
    """Evaluate only the test queries of this fold."""
    measures: Annotated[tuple[str, ...], Parameter(consume_multiple=(1, None), negative=(), show_default=False)] = ()
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


def evaluate(*runs: FilePath, options: EvalOptions = EvalOptions()) -> None:
    """Evaluate and compare runs: means, standard errors, significance tests.

    If the runs are in runs/<collection>, its judgments and folds are used. A fitted pipeline ranks the queries first,
    and is compared with its first stage.

    Parameters
    ----------
    runs
        TREC run files, .gz or not; those that differ only in the number of a fold are one run. Or a fitted pipeline.
    """
    form = options.format or ("csv" if options.per_query else "text")
    if options.per_query and form not in ("csv", "json"):
        raise UserError(f"--per-query: expected --format csv or json, got {form}")
    comparison = replace(
        _compared(runs, options),
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


def _compared(runs: Sequence[Path], options: EvalOptions) -> "Comparison":
    """The comparison of run files, or of the stages of a pipeline."""
    if len(runs) == 1 and runs[0].is_dir():
        from rerank.pipelines.folder import is_pipeline

        if is_pipeline(runs[0]):
            from rerank.pipelines.new_queries import compare_with_first_stage

            for flag, given in (
                (f"--folds {options.folds}", options.folds),
                (f"--fold {options.fold}", options.fold),
                ("--judged-queries-only", options.judged_queries_only),
            ):
                if given:
                    raise UserError(f"{flag}: {runs[0]} is a pipeline, which ranks all queries; leave it out")
            return compare_with_first_stage(runs[0], options.queries, options.qrels, options.measures)
    if options.queries:
        if missing := next((path for path in runs if not path.exists()), None):
            raise UserError(f"{missing}: no such file or folder; --queries expects the folder of a pipeline")
        raise UserError(f"--queries {options.queries}: run files need no texts; expected the folder of a pipeline")
    from rerank.experiments.runs.run_files import compare_files

    only_judged = options.judged_queries_only
    return compare_files(runs, options.qrels, options.folds, options.fold, options.measures, only_judged)
