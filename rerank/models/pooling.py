"""How the scores of a document's passages become its score."""

import torch
from torch import Tensor


def pool(passage_scores: Tensor, documents: Tensor, pooling: str) -> Tensor:
    """(passages,) scores -> (documents,) scores by the mean, first, max or sum over each document's passages.

    >>> pool(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]), "mean")
    tensor([2., 5.])
    """
    how = {"mean": "mean", "max": "amax", "sum": "sum"}
    if pooling == "first":
        first = torch.ones_like(documents, dtype=torch.bool)
        first[1:] = documents[1:] != documents[:-1]
        return passage_scores[first]
    empty = passage_scores.new_zeros(int(documents[-1]) + 1)
    return empty.scatter_reduce(0, documents, passage_scores, how[pooling], include_self=False)
