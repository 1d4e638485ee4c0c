"""The paper's table: a row for each run, mean ± standard error, the best marked, a dagger on what is worse than it."""

import math
from collections.abc import Sequence

from rerank.measures import measure_label
from rerank.significance import mean_and_error, paired_t_test
from rerank.types import Measurements

LEVEL = 0.05
COLUMNS = 5  # the paper puts precision and NDCG below each other, five columns each; a terminal is no wider either
GAIN_NOTE = "NDCG is trec_eval's, with gain rel (the losses have gain 2^rel - 1)."


def table(
    rows: dict[str, Measurements],
    folds: Sequence[Sequence[str]] = (),
    topics: str = "topics",
    notes: Sequence[str] = (),
    markdown: bool = False,
) -> str:
    """The table of `rows` (run name -> its measurements over the same queries), as aligned text or Markdown.

    With `folds` (the query ids of each) a mean is that of the folds' means, and its standard error is over folds.
    Without, both are over queries; `topics` says which these are. The best of each column is marked (bold in Markdown,
    `*` in text), and a dagger marks every run that a two-sided paired t-test over queries, at 5 %, finds worse than it.
    `notes` are further lines below the table.
    """
    first = next(iter(rows.values()))
    query_ids = list(next(iter(first.values())))
    over = f"{len(folds)} folds, {len(query_ids)} {topics}" if folds else f"{len(query_ids)} {topics}"
    columns = {name: _column([row[name] for row in rows.values()], query_ids, folds, markdown) for name in first}
    parts = [f"Mean ± standard error over {over}"]
    for start in range(0, len(columns), COLUMNS):
        names = list(columns)[start : start + COLUMNS]
        head = ["run", *map(measure_label, names)]
        body = [[run, *(columns[name][i] for name in names)] for i, run in enumerate(rows)]
        parts.append((_markdown if markdown else aligned)([head, *body]))
    legend = []
    if len(rows) > 1:
        mark = "bold" if markdown else "*"
        legend = [f"{mark}: best. †: worse than the best (two-sided paired t-test over the topics, p < {LEVEL})."]
    if any(name.startswith("ndcg") for name in columns):
        legend.append(GAIN_NOTE)
    lines = [*legend, *notes]
    parts.append("\n".join(f"- {line}" for line in lines) if markdown else "\n".join(lines))
    return "\n\n".join(part for part in parts if part) + "\n"


def _column(
    values: list[dict[str, float]], query_ids: list[str], folds: Sequence[Sequence[str]], markdown: bool
) -> list[str]:
    """The cells of one measure, a run each: values are query_id -> value."""
    cells = [_mean_and_error(of_run, query_ids, folds) for of_run in values]
    best = max(range(len(cells)), key=lambda i: cells[i][0])
    texts = []
    for (mean, error), of_run in zip(cells, values, strict=True):
        text = f"{mean:.4f}" if math.isnan(error) else f"{mean:.4f} ± {error:.4f}"
        if len(values) > 1 and mean == cells[best][0]:
            text = f"**{text}**" if markdown else f"{text}*"
        elif _worse(of_run, values[best], query_ids):
            text += "†"
        texts.append(text)
    return texts


def _mean_and_error(
    values: dict[str, float], query_ids: list[str], folds: Sequence[Sequence[str]]
) -> tuple[float, float]:
    if not folds:
        return mean_and_error([values[query_id] for query_id in query_ids])
    return mean_and_error([mean_and_error([values[query_id] for query_id in fold])[0] for fold in folds])


def _worse(values: dict[str, float], best: dict[str, float], query_ids: list[str]) -> bool:
    mine, its = [values[query_id] for query_id in query_ids], [best[query_id] for query_id in query_ids]
    return sum(mine) < sum(its) and paired_t_test(mine, its) < LEVEL


def _markdown(rows: list[list[str]]) -> str:
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


def aligned(rows: list[list[str]]) -> str:
    """Rows of cells, the first the head, as lines of text whose columns stand below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
