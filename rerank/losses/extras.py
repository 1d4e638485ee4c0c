"""Other applications of rank indicators (Thonet et al. 2021, conclusion): soft sorting, soft ranks and a k-NN loss.

They are not used for training here. The first three take the indicators (lists, ranks, documents) of any operator in
`rerank.losses.indicators`.
"""

from torch import Tensor

from rerank.losses.metrics import ranks_like
from rerank.losses.smooth import smoothi


def soft_ranking(indicators: Tensor, documents: Tensor) -> Tensor:
    """The documents in soft order: sum_j I_j^r x_j.

    Args:
        indicators: (lists, ranks, documents).
        documents: (lists, documents, features); padding must be finite.

    Returns:
        (lists, ranks, features).
    """
    return (indicators[:, :, :, None] * documents[:, None, :, :]).sum(dim=2)


def soft_sort(indicators: Tensor, scores: Tensor) -> Tensor:
    """The scores in soft descending order: sum_j I_j^r S_j, (lists, ranks). Padding must be finite."""
    return soft_ranking(indicators, scores[:, :, None]).squeeze(2)


def soft_ranks(indicators: Tensor) -> Tensor:
    """The soft rank of each document: sum_r r I_j^r, (lists, documents); needs the indicators of all ranks."""
    return (indicators * ranks_like(indicators, indicators.shape[1])[:, None]).sum(dim=1)


def knn(
    queries: Tensor,
    neighbours: Tensor,
    query_classes: Tensor,
    classes: Tensor,
    mask: Tensor | None = None,
    k: int = 9,
    alpha: float = 1.0,
    delta: float = 0.1,
) -> Tensor:
    """The k-NN loss (Grover et al. 2019): 1 - the soft share of the k nearest neighbours with the query's class.

    The neighbours are ranked by SmoothI on their negative squared distances: it is `smoothi` with the metric p@k.
    Grover et al. leave the constant 1 out.

    Args:
        queries: (lists, features).
        neighbours: (lists, neighbours, features).
        query_classes: (lists,).
        classes: (lists, neighbours).
        mask: (lists, neighbours), True on real neighbours; masked entries may hold anything.
        k: number of neighbours.
        alpha: as in `smoothi`.
        delta: as in `smoothi`.

    Returns:
        (lists,); 0 if no neighbour has the class of the query.
    """
    if mask is not None:
        # The loss masks the distances only: a NaN of the padding would reach the gradient of the queries through them.
        neighbours = neighbours.masked_fill(~mask.bool()[:, :, None], 0)
    distances = (queries[:, None, :] - neighbours).square().sum(dim=2)
    return smoothi(-distances, classes == query_classes[:, None], mask, f"p@{k}", alpha, delta)
