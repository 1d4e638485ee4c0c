"""Tables of the losses and their hyperparameters for help and files, so these need not import torch, which is slow.

A test compares the tables with the functions in rerank/losses and rerank/models/pooling.py.
"""

from collections.abc import Mapping

from rerank.utils.registry import Setting, hyperparameters, registered

LOSSES: dict[str, dict[str, Setting]] = {
    "adr_mse": {"alpha": 1.0},
    "approx": {"metric": "ndcg", "alpha": 1.0, "beta": 10.0, "cutoff_offset": 0.5},
    "bce": {},
    "distill_kl": {"temperature": 1.0},
    "fastsort": {"metric": "ndcg", "beta": 10.0, "cutoff_offset": 0.5, "strength": 1.0},
    "hinge": {"margin": 1.0, "pairs": "all"},
    "lambda_loss": {"metric": "ndcg", "weighting": "ndcg_loss2", "mu": 10.0},
    "listap": {"bins": 25, "low": -1.0, "high": 1.0},
    "listmle": {},
    "listnet": {},
    "margin_mse": {},
    "mse": {},
    "neural_ndcg": {"metric": "ndcg", "temperature": 1.0},
    "neuralsort": {"metric": "ndcg", "temperature": 1.0},
    "ot": {"metric": "ndcg", "beta": 10.0, "cutoff_offset": 0.5, "epsilon": 0.01},
    "pairwise_softmax": {},
    "pirank": {"metric": "ndcg", "temperature": 1.0},
    "rank_distil": {},
    "ranknet": {},
    "smoothi": {"metric": "ndcg", "alpha": 1.0, "delta": 0.1, "stop_gradient": True},
    "softmax": {},
    "softsort": {"metric": "ndcg", "temperature": 1.0},
}
"""Loss -> hyperparameter -> default, in the order of the signature."""

HELP = {
    "metric": "The metric that the loss optimises: p@K, rr@K, ndcg@K, rr, ndcg or ap.",
    "alpha": "Inverse temperature, above 0: of the soft ranks in approx and adr_mse, factor of the scores in smoothi.",
    "weighting": "The weights of pairs for ndcg and ndcg@K: ndcg_loss2, lambda_rank or ndcg_loss2++.",
    "mu": "Weight of ndcg_loss2 in ndcg_loss2++, 0 or above.",
    "beta": "Inverse temperature, above 0, of the soft cut-off at K and of the comparison of ranks in ap, rr and rr@K.",
    "cutoff_offset": "The soft cut-off is at rank K + cutoff_offset.",
    "temperature": "Above 0. The smaller, the closer to the true ranking; in distill_kl, T of both softmaxes.",
    "strength": "Above 0. The smaller, the closer to the true ranks, and the fewer documents have a gradient.",
    "margin": "Difference of scores from which a pair costs nothing.",
    "pairs": "all: every two documents with different labels; matched: relevant document i with non-relevant i.",
    "bins": "Number of bins, 2 or more, whose centres are evenly spaced from `high` down to `low`.",
    "low": "Lowest bin centre.",
    "high": "Highest bin centre.",
    "epsilon": "Weight of the entropic regularisation, above 0. The smaller, the closer to the true ranks.",
    "delta": "How far a ranked document is pushed down for the following ranks, between 0 and 0.5.",
    "stop_gradient": "Whether p is constant in the backward pass; without it the gradient explodes for large alpha.",
}
"""Hyperparameter -> help text."""

POOLINGS = ("first", "max", "mean", "softmax", "sum")


def losses() -> dict[str, dict[str, Setting]]:
    """Loss -> hyperparameter -> default, including losses that plug-ins and notebooks registered."""
    own = {name: loss for name, loss in registered("loss").items() if name not in LOSSES and callable(loss)}
    others = {name: hyperparameters(loss) for name, loss in own.items()}
    return dict(sorted((LOSSES | others).items()))


def losses_with() -> dict[str, dict[str, Setting]]:
    """Hyperparameter -> loss -> default.

    >>> losses_with()["alpha"]
    {'adr_mse': 1.0, 'approx': 1.0, 'smoothi': 1.0}
    """
    found: dict[str, dict[str, Setting]] = {}
    for name, defaults in losses().items():
        for key, default in defaults.items():
            found.setdefault(key, {})[name] = default
    return found


def help_of(key: str) -> str:
    """The help text of a hyperparameter; a plug-in's loss has it in its docstring."""
    if key in HELP:
        return HELP[key]
    import docstring_parser  # only the help of plug-ins needs it

    for function in registered("loss").values():
        for described in docstring_parser.parse(function.__doc__ or "").params:
            if described.arg_name == key:
                text = " ".join((described.description or "").split())
                return text[:1].upper() + text[1:]
    return ""


def poolings() -> list[str]:
    """The names of all poolings."""
    return sorted({*POOLINGS, *registered("pooling")})


def typed(loss: str, given: Mapping[str, Setting]) -> dict[str, Setting]:
    """Hyperparameters in the order of the loss's signature; texts, as flags give them, become the default's type.

    Unknown hyperparameters and values of a wrong type stay unchanged: `rerank.losses.create` raises an error for them.

    >>> typed("smoothi", {"stop_gradient": "false", "alpha": "10"})
    {'alpha': 10.0, 'stop_gradient': False}
    """
    defaults = losses().get(loss, {})
    ordered = [*(key for key in defaults if key in given), *(key for key in given if key not in defaults)]
    return {key: _value(given[key], defaults.get(key, "")) for key in ordered}


def _value(given: Setting, default: Setting) -> Setting:
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(str(given).lower(), given)
    is_written_as_another = isinstance(given, str) or (isinstance(default, float) and type(given) is int)
    try:
        return type(default)(given) if is_written_as_another else given
    except ValueError:
        return given
