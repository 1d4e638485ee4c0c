"""`rerank fuse`: several runs into one."""

from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.cli.arguments import print_output
from rerank.utils.parameters import FilePath, OptionalPath

Weights = Annotated[tuple[float, ...], Parameter(consume_multiple=(1, None), negative=(), show_default=False)]


def fuse(
    *runs: FilePath,
    out: FilePath,
    method: Literal["rrf", "interpolate"] = "rrf",
    rrf_k: float | None = None,
    weights: Weights = (),
    qrels: OptionalPath = None,
    folds: OptionalPath = None,
    measure: str | None = None,
) -> None:
    """Fuses runs, such as those of BM25 and a dense retriever, into one.

    Parameters
    ----------
    runs
        Two TREC run files or more, .gz or not.
    out
        The TREC run to write, and its manifest.
    method
        rrf: the sum of 1 / (k + rank); interpolate: a weighted sum of the scores, scaled to [0, 1] for each query.
    rrf_k
        The k of rrf [default: 60].
    weights
        Those of interpolate, a number for each run [default: tuned].
    qrels
        The judgments to tune on: of validation queries, or with --folds of all [default: the qrels.txt near the runs].
    folds
        Tune a fold's weights on its validation queries, for its test queries [default: the folds.json near the runs].
    measure
        The measure that chooses the weights [default: nDCG@20].
    """
    from rerank.runs.fuse_files import fuse_files

    print_output(fuse_files(runs, out, method, rrf_k=rrf_k, weights=weights, qrels=qrels, folds=folds, measure=measure))
