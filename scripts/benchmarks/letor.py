"""Benchmark: time and memory to read a feature file of MSLR-WEB30K's shape, for the first time and from the store."""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rerank.utils.errors import UserError
from rerank.utils.progress import log
from scripts.benchmarks.memory import MEASURE, expect_status, measured
from scripts.benchmarks.report import check, publish

FEATURES = 136
DOCUMENTS_OF_A_QUERY = 120
LABELS = 5
FOLDS = 5
DISTINCT = 5_000
"""Distinct rows of features; the file repeats them, because formatting numbers takes longer than reading them."""
BASELINE = "scikit-learn's load_svmlight_file"
BASELINE_ROWS = 200_000
COLUMNS = {"what": "", "rows": ",", "seconds": ",.2f", "MB/s": ",.1f", "peak MB": ",.0f"}
NOTES = (
    "seconds: in a fresh process, with its imports. peak MB: resident memory, summed over the process and its workers; "
    "shared memory counts for each.",
    f"{BASELINE}: at most the first {BASELINE_ROWS:,} rows, because it holds them all in memory.",
)
OPEN = f"""{MEASURE}
from pathlib import Path
from rerank.data.letor.layouts import open_fold
measure(lambda path, cache: open_fold(path, "1", {FOLDS}, Path(cache)))
"""
LOAD = f"""{MEASURE}
from sklearn.datasets import load_svmlight_file
measure(lambda path, _: load_svmlight_file(path, query_id=True))
"""


def bench_letor(rows: int, out: Path | None = None) -> str:
    """Writes a file with `rows` documents, reads it into a store, opens the store again, and returns the table.

    Raises UserError for too few rows, for an `out` that cannot be written, and if the disk is full.
    """
    check(1, out)
    if rows < FOLDS * DOCUMENTS_OF_A_QUERY:
        raise UserError(f"--rows: got {rows}, expected {FOLDS * DOCUMENTS_OF_A_QUERY} or more: a query a fold")
    expect_status()
    with tempfile.TemporaryDirectory(prefix="rerank-letor-") as name:
        folder = Path(name)
        text, part = folder / "all.txt", folder / "part.txt"
        log.info(f"writing {rows:,} rows")
        write_rows(text, rows)
        write_rows(part, min(rows, BASELINE_ROWS))
        table = [
            _measured("first reading", rows, text, OPEN, folder),
            _measured("opened again", rows, text, OPEN, folder),
            _measured(BASELINE, min(rows, BASELINE_ROWS), part, LOAD, folder),
        ]
        size = text.stat().st_size
    settings = {"rows": rows, "features": FEATURES, "bytes": size, "documents of a query": DOCUMENTS_OF_A_QUERY}
    title = f"Reading {rows:,} × {FEATURES} features, {size / 1e6:,.0f} MB of text, {os.cpu_count()} processors"
    return publish(title, table, COLUMNS, settings, torch.device("cpu"), NOTES, out)


def write_rows(path: Path, rows: int) -> None:
    """Writes SVMlight lines like MSLR's: all features, half of them integers, the others with six decimals."""
    numbers = np.random.default_rng(0)
    values = numbers.random((min(rows, DISTINCT), FEATURES)) * 10
    form = " ".join(f"{i}:%.{6 * (i % 2)}f" for i in range(1, FEATURES + 1))
    lines = [form % tuple(row) for row in values.tolist()]
    labels = numbers.integers(0, LABELS, rows)
    with path.open("w", encoding="ascii") as out:
        for row, label in enumerate(labels.tolist()):
            out.write(f"{label} qid:{row // DOCUMENTS_OF_A_QUERY + 1} {lines[row % len(lines)]} \n")


def _measured(what: str, rows: int, path: Path, code: str, folder: Path) -> dict[str, Any]:
    log.info(what)
    found = measured(code, [str(path), str(folder / "cache")], folder)
    rate = path.stat().st_size / 1e6 / found["seconds"] if what != "opened again" else None
    return {"what": what, "rows": rows, "MB/s": rate, **found}
