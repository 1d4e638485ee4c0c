"""Benchmark: time and memory of an experiment's steps on a collection of MS MARCO's shape, and at its full size."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rerank.utils.errors import UserError
from rerank.utils.progress import log
from scripts.benchmarks.large_collection import (
    DEPTH,
    Shape,
    shape,
    write_encoder,
    write_large_collection,
    write_large_run,
)
from scripts.benchmarks.memory import MEASURE, RUN, expect_status, measured
from scripts.benchmarks.report import check, publish

SMALLER = 10
"""The extrapolation is a line through this share of the size, and the size."""
FEW_QUERIES = 1_000
COLUMNS = {"what": "", "passages": ",", "run's lines": ",", "s": ",.1f", "peak MB": ",.0f"}
COLUMNS |= {"full size, s": ",.0f", "full size, peak MB": ",.0f"}
NOTES = (
    "peak MB: the most resident memory of the process and its workers (Linux), with the parts of memory-mapped files "
    "that are in use. Full size: MS MARCO's 8,841,823 passages and 509,962 judged queries, on the line through two "
    f"sizes; the commands with {FEW_QUERIES:,} queries have as many at every size, the validation queries apart.",
    "train: one epoch of 256 lists with a BERT of 2 layers, 64 wide, that validates on the queries of dev.tsv and "
    "reads a run.",
)
HASH = f"""{MEASURE}
from rerank.data.collections import open_collection
measure(lambda folder: open_collection(folder).fingerprint)
"""
READ = f"""{MEASURE}
from rerank.data.trec_arrays import read_run_arrays
measure(lambda path: read_run_arrays(path, {DEPTH}))
"""


class Step(NamedTuple):
    """What is measured: Python code and its arguments, which are relative to a folder with everything that it needs."""

    code: str
    arguments: Sequence[str]


TRAIN = (
    *("train", "--collection", "collection", "--first-stage.run", "first-stage.run", "--encoder", "../encoder"),
    *("--fold", "split", "--training.epochs", "1", "--output.folder", "runs", "--depth", str(DEPTH)),
)
FEW = ("--collection.train-queries", str(FEW_QUERIES), "--name")
STEPS = {
    "hash": Step(HASH, ("collection",)),
    "hash, again": Step(HASH, ("collection",)),
    "read": Step(READ, ("first-stage.run",)),
    "read, gzipped": Step(READ, ("first-stage.run.gz",)),
    "read, by rank": Step(READ, ("by-rank.run",)),
    "train-few": Step(RUN, (*TRAIN, *FEW, "few")),
    "train-few, again": Step(RUN, (*TRAIN, *FEW, "few-again")),
    "train": Step(RUN, (*TRAIN, "--name", "all")),
    "train, again": Step(RUN, (*TRAIN, "--name", "all-again")),
    "retrieve": Step(RUN, ("retrieve", "--collection", "collection", "--output.folder", "runs", "--depth", str(DEPTH))),
}
"""The steps by name; a name with a comma repeats or varies the step before."""
DEFAULT = ("hash", "read", "train-few", "train")


def bench_large(
    share: float = 0.1, steps: Sequence[str] = DEFAULT, checkout: Path | None = None, out: Path | None = None
) -> str:
    """Measures the steps on this share of MS MARCO and on a tenth of it, and returns the table.

    `checkout` is a checkout of another version of rerank to measure. Raises UserError for a share that is not above 0
    and at most 1, for a step that does not exist, and if a step fails.
    """
    check(1, out)
    if not 0 < share <= 1:
        raise UserError(f"--share: got {share:g}, expected a number above 0, at most 1")
    known = [name for name in STEPS if "," not in name]
    if unknown := [name for name in steps if name not in known]:
        raise UserError(f"{unknown[0]}: no such step; expected {', '.join(known)}")
    expect_status()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rerank-large-") as name:
        write_encoder(Path(name) / "encoder")
        sizes = [shape(share / SMALLER), shape(share)]
        for of in sizes:
            folder = Path(name) / str(of.passages)
            _write(folder, of, steps)
            for what, step in STEPS.items():
                if what.split(",")[0] in steps:
                    log.info(f"{what}, {of.passages:,} passages")
                    found = measured(step.code, step.arguments, folder, checkout)
                    log.info(f"{what}: {found['seconds']:,.1f} s, {found['peak MB']:,.0f} MB")
                    row = {"passages": of.passages, "run's lines": of.lines, "s": found["seconds"]}
                    rows.append({"what": what, **row, "peak MB": found["peak MB"]})
    rows = with_full_size(rows)
    import torch

    settings = {"share": share, "steps": list(steps), "checkout": checkout and str(checkout)}
    title = f"{share:.3g} of MS MARCO's passages and queries, {os.cpu_count()} processors"
    return publish(title, rows, COLUMNS, settings, torch.device("cpu"), NOTES, out)


def with_full_size(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, step by step; that of the larger size also has what the line through both gives at the full size."""
    full = shape(1).passages
    found: list[dict[str, Any]] = []
    for what in dict.fromkeys(row["what"] for row in rows):
        smaller, larger = sorted((row for row in rows if row["what"] == what), key=lambda row: row["passages"])
        factor = (full - larger["passages"]) / (larger["passages"] - smaller["passages"])
        at_full = {f"full size, {key}": larger[key] + factor * (larger[key] - smaller[key]) for key in ("s", "peak MB")}
        found += [smaller, larger | at_full]
    return found


def _write(folder: Path, of: Shape, steps: Sequence[str]) -> None:
    log.info(f"writing {of.passages:,} passages and a run of {of.lines:,} lines")
    write_large_collection(folder / "collection", of)
    write_large_run(folder / "first-stage.run", of)
    if "read" in steps:
        write_large_run(folder / "first-stage.run.gz", of)
        write_large_run(folder / "by-rank.run", of, by_rank=True)
