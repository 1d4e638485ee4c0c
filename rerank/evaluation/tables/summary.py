"""The paper's table: a row for each run, mean ± standard error, the best marked, a dagger on what is worse than it."""

import math
from collections.abc import Sequence

from rerank.evaluation.compare import LEVEL, Compared
from rerank.evaluation.measures import measure_label
from rerank.evaluation.tables.table import Cell, Table, cells

COLUMNS = 5  # the paper puts precision and NDCG below each other, five columns each; a terminal is no wider either
GAIN_NOTE = "NDCG is trec_eval's, with gain rel (the losses have gain 2^rel - 1)."
TEST_NAMES = {"t": "t-test", "wilcoxon": "Wilcoxon signed-rank test", "randomisation": "randomisation test"}
CORRECTION_NAMES = {"bonferroni": "Bonferroni", "holm": "Holm"}


def paper_table(
    compared: dict[str, list[Compared]],
    over: str,
    notes: Sequence[str] = (),
    baseline: str | None = None,
    test: str = "t",
    correction: str = "bonferroni",
) -> Table:
    """A block of rows for every five measures. `over` says what the means are over, such as "5 folds, 249 topics".

    A dagger marks a run that is significantly worse than the best; with a `baseline` arrows mark what is better (↑) and
    worse (↓) than it. `compared` is that of `compare` with the same `baseline`, `test` and `correction`.
    """
    runs = [row.run for row in next(iter(compared.values()))]
    blocks = []
    for start in range(0, len(compared), COLUMNS):
        names = list(compared)[start : start + COLUMNS]
        head = cells(["run", *map(measure_label, names)])
        body = [
            [Cell(run), *(_cell(compared[name][i], len(runs), baseline) for name in names)]
            for i, run in enumerate(runs)
        ]
        blocks.append([head, *body])
    legend = [] if len(runs) == 1 else [_marks(len(runs) - 1, baseline, test, correction)]
    return Table(f"Mean ± standard error over {over}", blocks, [*legend, *gain_note(compared)], notes)


def how_tested(others: int, test: str, correction: str) -> str:
    """The test, its level and its correction in words; `others` is the number of runs beside the reference."""
    line = f"two-sided paired {TEST_NAMES[test]} over the topics, p < {LEVEL}"
    if others == 1 or correction == "none":
        return line
    return f"{line}, {CORRECTION_NAMES[correction]} over the {others} other runs"


def gain_note(measures: dict[str, list[Compared]]) -> list[str]:
    """What to know where trec_eval's NDCG is among the measures."""
    return [GAIN_NOTE] if any(name.startswith("ndcg") for name in measures) else []


def _marks(others: int, baseline: str | None, test: str, correction: str) -> str:
    what = f"↑, ↓: better, worse than {baseline}" if baseline else "†: worse than the best"
    return f"{{best}}: best. {what} ({how_tested(others, test, correction)})."


def _cell(row: Compared, runs: int, baseline: str | None) -> Cell:
    mean, error = row.shown
    text = f"{mean:.4f}" if math.isnan(error) else f"{mean:.4f} ± {error:.4f}"
    mark = ""
    if row.significant and row.difference < 0:
        mark = "↓" if baseline else "†"
    elif row.significant and row.difference > 0 and baseline:
        mark = "↑"
    return Cell(text, row.best and runs > 1, mark)
