"""The names of losses and the measures of the tables in Thonet et al. 2021."""

MEASURES = ("P@1", "P@5", "P@10", "nDCG@1", "nDCG@5", "nDCG@10", "nDCG", "AP")
"""The columns of Table 2, "Learning-to-rank retrieval results", in its order."""

LOSSES = {
    "listnet": "ListNet",
    "listmle": "ListMLE",
    "listap": "ListAP",
    "lambda_loss": "LambdaLoss",
    "approx": "Approx",
    "fastsort": "FastSort",
    "ot": "OT",
    "neuralsort": "NeuralSort",
    "softsort": "SoftSort",
    "smoothi": "SmoothI",
}
"""Our names of the losses and the paper's, in its order."""


def loss_label(name: str) -> str:
    """The paper's name of a loss, or ours if the paper does not have the loss."""
    return LOSSES.get(name, name)
