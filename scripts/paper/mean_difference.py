"""Compares two runs on several collections: the mean of the differences on each, and of these means.

    python -m scripts.paper.mean_difference adapter/all.run three.run runs/cystic-fibrosis runs/cranfield runs/time

The runs are named relative to the folders of the collections, which have the judgments. A collection's p is that of the
two-sided paired t-test over its queries. The standard error of the mean takes those of the collections, whose queries
are independent; its interval of 95 % and its two-sided p are those of the normal distribution. Nothing is corrected.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import norm, ttest_1samp

from rerank.data.trec import read_qrels, read_run
from rerank.evaluation.evaluate import evaluate
from rerank.runs.layout import CollectionFolder


def differences(folder: Path, first: str, second: str, measure: str) -> np.ndarray:
    """(queries,) the measure of the first run minus that of the second, for each judged query."""
    qrels = read_qrels(CollectionFolder(folder).qrels)
    one, other = (next(iter(evaluate(qrels, read_run(folder / run), [measure]).values())) for run in (first, second))
    return np.array([one[query_id] - other[query_id] for query_id in qrels])


def line(name: str, mean: float, error: float, p: float) -> str:
    """A row: the difference, its interval of 95 % and its p."""
    low, high = mean - norm.ppf(0.975) * error, mean + norm.ppf(0.975) * error
    return f"{name:20s} {mean:+.4f} [{low:+.4f}, {high:+.4f}]  p = {p:.2g}"


def compare(first: str, second: str, folders: list[Path], measure: str) -> str:
    """One row for each collection and one for their mean."""
    found = {folder.name: differences(folder, first, second, measure) for folder in folders}
    errors = {name: values.std(ddof=1) / len(values) ** 0.5 for name, values in found.items()}
    rows = [line(name, v.mean(), errors[name], ttest_1samp(v, 0).pvalue) for name, v in found.items()]
    mean = float(np.mean([values.mean() for values in found.values()]))
    error = float(np.sqrt(sum(one**2 for one in errors.values()))) / len(found)
    return "\n".join([*rows, line("mean", mean, error, 2 * norm.sf(abs(mean) / error))])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", help="a run, relative to the folders")
    parser.add_argument("second", help="the run that it is compared with")
    parser.add_argument("folders", nargs="+", type=Path, help="of the collections, with qrels.txt")
    parser.add_argument("--measure", default="nDCG@20")
    given = parser.parse_args()
    print(compare(given.first, given.second, given.folders, given.measure))
