"""Benchmark: the time and memory to read a feature file of the shape of MSLR-WEB30K, first and again."""

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

from rerank.errors import UserError
from rerank.utils.progress import log
from scripts.benchmarks.report import check, publish

FEATURES = 136
DOCUMENTS_OF_A_QUERY = 120
LABELS = 5
FOLDS = 5
DISTINCT = 5_000
"""Rows of features that differ; they come again and again, because writing numbers takes longer than reading them."""
PEER = "scikit-learn's load_svmlight_file"
PEER_ROWS = 200_000
COLUMNS = {"what": "", "rows": ",", "seconds": ",.2f", "MB/s": ",.1f", "peak MB": ",.0f"}
NOTES = (
    "seconds: in a fresh process, with its imports. peak MB: resident, summed over the process and its workers; what "
    "they share counts more than once.",
    f"{PEER}: at most the first {PEER_ROWS:,} rows, because it holds them all in memory.",
)


def bench_letor(rows: int, out: Path | None = None) -> str:
    """Writes a file with `rows` documents, reads it into a store, opens that again; the table.

    Raises UserError where there are too few rows, `out` cannot be written, or the disk is full.
    """
    check(1, out)
    if rows < FOLDS * DOCUMENTS_OF_A_QUERY:
        raise UserError(f"--rows: got {rows}, expected {FOLDS * DOCUMENTS_OF_A_QUERY} or more: a query a fold")
    with tempfile.TemporaryDirectory(prefix="rerank-letor-") as name:
        folder = Path(name)
        text, part = folder / "all.txt", folder / "part.txt"
        log.info(f"writing {rows:,} rows")
        write_rows(text, rows)
        write_rows(part, min(rows, PEER_ROWS))
        table = [
            _measured("first reading", rows, text, open_source, text, folder / "cache"),
            _measured("opened again", rows, text, open_source, text, folder / "cache"),
            _measured(PEER, min(rows, PEER_ROWS), part, load_peer, part),
        ]
        size = text.stat().st_size
    settings = {"rows": rows, "features": FEATURES, "bytes": size, "documents of a query": DOCUMENTS_OF_A_QUERY}
    title = f"Reading {rows:,} × {FEATURES} features, {size / 1e6:,.0f} MB of text, {os.cpu_count()} processors"
    return publish(title, table, COLUMNS, settings, torch.device("cpu"), NOTES, out)


def write_rows(path: Path, rows: int) -> None:
    """Writes SVMlight lines as MSLR has them: every feature, half of them whole numbers, the others six decimals."""
    numbers = np.random.default_rng(0)
    values = numbers.random((min(rows, DISTINCT), FEATURES)) * 10
    form = " ".join(f"{i}:%.{6 * (i % 2)}f" for i in range(1, FEATURES + 1))
    lines = [form % tuple(row) for row in values.tolist()]
    labels = numbers.integers(0, LABELS, rows)
    with path.open("w", encoding="ascii") as out:
        for row, label in enumerate(labels.tolist()):
            out.write(f"{label} qid:{row // DOCUMENTS_OF_A_QUERY + 1} {lines[row % len(lines)]} \n")


def open_source(path: Path, cache: Path) -> float:
    """Opens the first of five folds of the file; the seconds that it took."""
    start = time.perf_counter()
    from rerank.data.letor.layouts import open_fold

    open_fold(str(path), "1", FOLDS, cache)
    return time.perf_counter() - start


def load_peer(path: Path) -> float:
    """Reads the file with scikit-learn; the seconds that it took."""
    start = time.perf_counter()
    from sklearn.datasets import load_svmlight_file

    load_svmlight_file(str(path), query_id=True)
    return time.perf_counter() - start


def _measured(what: str, rows: int, path: Path, work: Callable[..., float], *arguments: object) -> dict[str, Any]:
    """Runs `work`, which gives its seconds, in a new process, and watches the memory of that and its workers."""
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
    """Bytes of this process's descendants, 0 where the system does not say (it is not Linux)."""
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
