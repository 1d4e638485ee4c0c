"""Agreement of two models that score the same documents: differences of scores, and of the rankings."""

from dataclasses import dataclass

import numpy as np

from rerank.data.trec import ranked
from rerank.data.types import Run

TOP = 10


@dataclass(frozen=True)
class Agreement:
    """How far two runs of the same candidates agree.

    mean_difference, largest_difference: of the scores, absolute; spread: the standard deviation of the first run's
    scores; tau: Kendall's τ-b, the mean over queries with different scores; same_top: the share of the first run's best
    TOP documents that are among the best TOP of the second, the mean over queries.
    """

    queries: int
    documents: int
    mean_difference: float
    largest_difference: float
    spread: float
    tau: float
    same_top: float

    def __str__(self) -> str:
        return (
            f"scores differ by {self.mean_difference:.2g} on average and {self.largest_difference:.2g} at most (their "
            f"standard deviation is {self.spread:.2g}), Kendall's tau {self.tau:.4f}, {self.same_top:.1%} of the top "
            f"{TOP} documents are the same; {self.queries} queries, {self.documents} documents"
        )


def agreement_of(first: Run, second: Run) -> Agreement:
    """The agreement of two runs with the same queries and documents, at least one.

    >>> agreement_of({"q": {"a": 1.0, "b": 3.0}}, {"q": {"a": 1.5, "b": 3.0}}).tau
    1.0
    """
    from scipy.stats import kendalltau  # takes half a second

    pairs = [(score, second[query_id][doc_id]) for query_id in first for doc_id, score in first[query_id].items()]
    scores = np.array(pairs)
    differences = np.abs(scores[:, 0] - scores[:, 1])
    taus, shares = [], []
    for query_id, own in first.items():
        tau = kendalltau(list(own.values()), [second[query_id][doc_id] for doc_id in own]).statistic
        if np.isfinite(tau):  # it is not a number for one document, and for equal scores
            taus.append(float(tau))
        best = set(ranked(own)[:TOP])
        shares.append(len(best & set(ranked(second[query_id])[:TOP])) / len(best))
    return Agreement(
        queries=len(first),
        documents=len(pairs),
        mean_difference=float(differences.mean()),
        largest_difference=float(differences.max()),
        spread=float(scores[:, 0].std()),
        tau=float(np.mean(taus)) if taus else 1.0,
        same_top=float(np.mean(shares)),
    )
