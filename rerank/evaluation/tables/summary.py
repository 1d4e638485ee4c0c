"""The summary table: mean ± standard error of each run, the best in bold, marks for significant differences."""

from collections.abc import Sequence

from rerank.evaluation.measures import is_sum
from rerank.evaluation.run_comparison import LEVEL, RunComparison
from rerank.evaluation.significance import CORRECTIONS, TESTS
from rerank.evaluation.tables.table import Cell, Table, cells, format_mean

COLUMNS = 5  # as in the paper, whose table has precision above nDCG; more do not fit a terminal
GAIN_NOTE = "nDCG is trec_eval's, with gain rel (the losses have gain 2^rel - 1)."


def summary_table(
    comparisons: dict[str, list[RunComparison]],
    averaged_over: str,
    notes: Sequence[str] = (),
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
) -> Table:
    """A block of rows for every five measures.

    `comparisons` are those of `compare_measurements` with the same `baseline`, `test` and `correction`. A dagger marks
    a run that is significantly worse than the best; with a `baseline`, arrows mark runs that are significantly better
    (↑) or worse (↓). `averaged_over` says what the means are over, such as "5 folds, 249 queries".
    """
    runs = [row.run for row in next(iter(comparisons.values()))]
    blocks = []
    for start in range(0, len(comparisons), COLUMNS):
        measures = list(comparisons)[start : start + COLUMNS]
        body = [
            [Cell(run), *(_cell(comparisons[measure][i], len(runs), baseline) for measure in measures)]
            for i, run in enumerate(runs)
        ]
        blocks.append([cells(["run", *measures]), *body])
    legend = [] if len(runs) == 1 else [_marks(len(runs) - 1, baseline, test, correction)]
    return Table(
        f"Mean ± standard error over {averaged_over}",
        blocks,
        [*legend, *measure_notes(comparisons)],
        notes,
        of_runs=True,
    )


def describe_test(others: int, test: str, correction: str) -> str:
    """The test, its level and its correction in words; `others` is the number of runs besides the reference."""
    line = f"two-sided paired {TESTS[test].label} over the queries, p < {LEVEL}"
    label = CORRECTIONS[correction].label
    return f"{line}, {label} over the {others} other runs" if label and others > 1 else line


def measure_notes(comparisons: dict[str, list[RunComparison]]) -> list[str]:
    """The note on the gain, if trec_eval's nDCG is among the measures, and on measures that are no means."""
    notes = [GAIN_NOTE] if any(measure.partition("@")[0] == "nDCG" for measure in comparisons) else []
    sums = ", ".join(filter(is_sum, comparisons))
    return [*notes, f"{sums}: the sum over the queries, not the mean."] if sums else notes


def _marks(others: int, baseline: str | None, test: str, correction: str) -> str:
    marks = f"↑, ↓: better, worse than {baseline}" if baseline else "†: worse than the best"
    return f"{{best}}: best. {marks} ({describe_test(others, test, correction)})."


def _cell(row: RunComparison, runs: int, baseline: str | None) -> Cell:
    mark = ""
    if row.significant and row.difference < 0:
        mark = "↓" if baseline else "†"
    elif row.significant and row.difference > 0 and baseline:
        mark = "↑"
    return Cell(format_mean(*row.headline), row.best and runs > 1, mark)
