"""`rerank fuse`: fuses several runs into one."""

from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.utils.parameters import FilePath, OptionalPath, at_least
from rerank.utils.progress import print_result

Weights = Annotated[tuple[float, ...], Parameter(consume_multiple=(1, None), negative=(), show_default=False)]


def fuse(
    *runs: FilePath,
    out: FilePath,
    method: Literal["rrf", "interpolate"] = "rrf",
    rrf_k: Annotated[float | None, at_least(0), Parameter(show_default=False)] = None,
    weights: Weights = (),
    qrels: OptionalPath = None,
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
        The k of rrf; a smaller one prefers the first ranks [default: 60].
    weights
        The weights of interpolate, a number for each run [default: tuned].
    qrels
        Judgments of validation queries to tune on [default: by fold, with the qrels.txt and folds.json near the runs].
    measure
        The measure that chooses the weights [default: nDCG@20].
    """
    from rerank.experiments.runs.fuse_files import Fusion, fuse_files

    print_result(fuse_files(runs, out, Fusion(method, rrf_k, weights, qrels, measure)))
