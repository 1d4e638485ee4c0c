"""Small files as the known data sets have them."""

import gzip
from pathlib import Path

import numpy as np

LETOR = "{label} qid:{query} {features} #docid = {doc} inc = 0.04 prob = 0.9"
"""MQ2007 and MQ2008."""
OHSUMED = "{label} qid:{query} {features} #docid = {doc} \r"
MSLR = "{label} qid:{query} {features} "


def matrix(rows: int, width: int, seed: int = 0) -> np.ndarray:
    """(rows, width) float32 values of six decimals, about half of them 0."""
    numbers = np.random.default_rng(seed)
    values = numbers.integers(0, 10**6, (rows, width)) * numbers.integers(0, 2, (rows, width)) / 10**6
    return values.astype(np.float32)


def text(form: str, queries: dict[str, np.ndarray], sparse: bool = False) -> str:
    """The lines of queries with a matrix each; document i has the label i modulo 3 and the id `QUERY.i`."""
    return "".join(
        form.format(label=i % 3, query=query, doc=f"{query}.{i}", features=_features(row, sparse)) + "\n"
        for query, values in queries.items()
        for i, row in enumerate(values)
    )


def _features(row: np.ndarray, sparse: bool) -> str:
    return " ".join(f"{i}:{value:.6f}" for i, value in enumerate(row.tolist(), 1) if value or not sparse)


def put(path: Path, content: str) -> Path:
    """Writes a text file, gzipped where its name ends in .gz, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_folds(
    folder: Path, form: str = LETOR, width: int = 46, names: str = "Fold{}", parts: str = "test vali train"
) -> None:
    """Five folds of three files; fold k tests the queries `k0` and `k1`, and those after it validate and train."""
    for k in range(5):
        for j, part in enumerate(parts.split()):
            queries = {f"{1 + (k + j) % 5}{q}": matrix(3, width, seed=10 * k + 2 * j + q) for q in range(2)}
            put(folder / names.format(k + 1) / (part if "." in part else f"{part}.txt"), text(form, queries))
