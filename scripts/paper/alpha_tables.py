"""The table of a study of alpha: each arm's test values, and each family with the alpha that validation chose."""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rerank.evaluation.significance import mean_and_error
from rerank.evaluation.tables.table import aligned
from scripts.paper.selection import TestResult, compare_with_best


class Row(NamedTuple):
    """One training: `valid` is the mean over the validation queries, `test` is query_id -> value."""

    arm: str
    size: str
    seed: int
    fold: str
    epoch: int
    valid: float
    test: dict[str, float]


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, if it exists."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [Row(**json.loads(line)) for line in lines]


def family(arm: str) -> str:
    """The loss of an arm: `smoothi` of `smoothi=3`."""
    return arm.partition("=")[0]


def result(rows: Iterable[Row]) -> TestResult:
    """One mean for each seed, over all queries, and each query's mean over the seeds."""
    by_seed, by_query = defaultdict(list), defaultdict(list)
    for row in rows:
        by_seed[row.seed] += row.test.values()
        for query_id, value in row.test.items():
            by_query[query_id].append(value)
    return TestResult([fmean(values) for values in by_seed.values()], {q: fmean(v) for q, v in by_query.items()})


def chosen(rows: Iterable[Row]) -> list[Row]:
    """For each fold and seed the row with the best validation mean."""
    best: dict[tuple[str, int], Row] = {}
    for row in rows:
        key = row.fold, row.seed
        if key not in best or row.valid > best[key].valid:
            best[key] = row
    return list(best.values())


def finished(rows: list[Row]) -> list[Row]:
    """The rows of the seeds of which an arm has all folds."""
    folds = {row.fold for row in rows}
    trained = defaultdict(set)
    for row in rows:
        trained[row.arm, row.size, row.seed].add(row.fold)
    return [row for row in rows if trained[row.arm, row.size, row.seed] == folds]


def of_common_seeds(arms: list[list[Row]]) -> list[Row]:
    """The rows of the seeds that all arms of a family have, so that each seed has the same choice."""
    seeds = set.intersection(*({row.seed for row in rows} for rows in arms if rows)) if any(arms) else set()
    return [row for rows in arms for row in rows if row.seed in seeds]


def table(rows: list[Row], measure: str) -> str:
    """The means of all arms, and of each family's chosen ones; the sizes of the lists are the columns.

    Seeds that lack a fold are left out.
    """
    rows = finished(rows)
    sizes = list(dict.fromkeys(row.size for row in rows))
    arms = list(dict.fromkeys(row.arm for row in rows))
    families = list(dict.fromkeys(map(family, arms)))
    of_arm = {(a, s): [row for row in rows if (row.arm, row.size) == (a, s)] for a in arms for s in sizes}
    of_family = {
        (f, s): chosen(of_common_seeds([of_arm[a, s] for a in arms if family(a) == f])) for f in families for s in sizes
    }
    single = [[a, *(cell(of_arm[a, s]) for s in sizes)] for a in arms]
    picked = [[f"{f}, chosen", *(cell(of_family[f, s]) for s in sizes)] for f in families]
    lines = [f"{measure}: mean over the test queries ± standard error over the seeds; in parentheses, validation", ""]
    lines += [aligned([["arm", *sizes], *single, *picked]), ""]
    for size in sizes:
        results = {f: result(of_family[f, size]) for f in families if of_family[f, size]}
        complete = {f: r for f, r in results.items() if len(r.values) == max(len(o.values) for o in results.values())}
        if len(complete) > 1:
            best, worse = compare_with_best(complete)
            lines.append(
                f"lists of {size}: best {', '.join(sorted(best))}; worse: {', '.join(sorted(worse)) or 'none'}"
            )
    return "\n".join([*lines, "worse: paired t-test over the queries, p < 0.05, Bonferroni"])


def cell(rows: list[Row]) -> str:
    """`.512 ± .003 (.498)`, or a dash."""
    if not rows:
        return "-"
    means = result(rows).means
    mean, error = mean_and_error(means)
    valid = fmean(row.valid for row in rows)
    return f"{mean:.4f} ± {error:.4f} ({valid:.4f})" if len(means) > 1 else f"{mean:.4f} ({valid:.4f})"
