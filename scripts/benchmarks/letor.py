"""Benchmark: time and memory to read a feature file of MSLR-WEB30K's shape, for the first time and from the store."""

import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rerank.utils.errors import UserError
from rerank.utils.progress import log
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


def bench_letor(rows: int, out: Path | None = None) -> str:
    """Writes a file with `rows` documents, reads it into a store, opens the store again, and returns the table.

    Raises UserError for too few rows, for an `out` that cannot be written, and if the disk is full.
    """
    check(1, out)
    if rows < FOLDS * DOCUMENTS_OF_A_QUERY:
        raise UserError(f"--rows: got {rows}, expected {FOLDS * DOCUMENTS_OF_A_QUERY} or more: a query a fold")
    with tempfile.TemporaryDirectory(prefix="rerank-letor-") as name:
        folder = Path(name)
        text, part = folder / "all.txt", folder / "part.txt"
        log.info(f"writing {rows:,} rows")
        write_rows(text, rows)
        write_rows(part, min(rows, BASELINE_ROWS))
        table = [
            _measured("first reading", rows, text, open_source, text, folder / "cache"),
            _measured("opened again", rows, text, open_source, text, folder / "cache"),
            _measured(BASELINE, min(rows, BASELINE_ROWS), part, load_with_scikit_learn, part),
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


def open_source(path: Path, cache: Path) -> float:
    """Opens the first of five folds of the file; returns the seconds."""
    start = time.perf_counter()
    from rerank.data.letor.layouts import open_fold

    open_fold(str(path), "1", FOLDS, cache)
    return time.perf_counter() - start


def load_with_scikit_learn(path: Path) -> float:
    """Reads the file with scikit-learn; returns the seconds."""
    start = time.perf_counter()
    from sklearn.datasets import load_svmlight_file

    load_svmlight_file(str(path), query_id=True)
    return time.perf_counter() - start


def _measured(what: str, rows: int, path: Path, work: Callable[..., float], *arguments: object) -> dict[str, Any]:
    """Runs `work`, which returns its seconds, in a new process, and records the memory of it and its workers."""
    log.info(what)
    peak = 0
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        future = pool.submit(work, *arguments)
        while not future.done():
            peak = max(peak, _resident())
            wait([future], timeout=0.2)
        seconds = future.result()
    rate = path.stat().st_size / 1e6 / seconds if what != "opened again" else None
    return {"what": what, "rows": rows, "seconds": seconds, "MB/s": rate, "peak MB": peak / 1e6 if peak else None}


def _resident() -> int:
    """Resident bytes of this process's descendants; 0 on systems other than Linux."""
    parents, pages = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            pages[int(folder.name)] = int((folder / "statm").read_text().split()[1])
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(fields[1])
    family = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(pages.get(process, 0) for process in family - {os.getpid()}) * os.sysconf("SC_PAGE_SIZE")
