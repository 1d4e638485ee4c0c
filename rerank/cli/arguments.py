"""Arguments of several commands."""

from contextvars import ContextVar
from typing import Annotated

from cyclopts import Parameter

from rerank.utils.parameters import PathText, Pattern

WHOLE_HELP = ContextVar("whole_help", default=True)
"""Whether the help of a command shows all settings, and not those alone that are set often."""

Model = Annotated[
    PathText,
    Parameter(
        help="The folder that `rerank fit` wrote; or runs/<collection>/<experiment>/fold1/checkpoint, or any Hugging "
        "Face cross-encoder."
    ),
]
"""What ranks."""

OF_CHECKPOINT = Parameter(
    help="Where queries and documents are; default: the collection that the checkpoint was trained on.",
    show_default=False,
)
"""--collection of a command whose model names a collection."""

OF_RANKING = (
    "collection.source",
    "collection.language",
    "first_stage.index",
    "first_stage.depth",
    "first_stage.k1",
    "first_stage.b",
    "first_stage.threads",
    "encoder.pooling",
    "encoder.template",
    "training.device",
    "training.precision",
    "training.max_tokens_per_forward",
    "output.folder",
)
"""The settings that act on what ranks with a pipeline or a model: score, search and serve."""

Budget = Annotated[
    str, Parameter(validator=Pattern(r"\d{1,9}(\.\d{1,9})?ms", "milliseconds, such as 100ms"), show_default=False)
]


def milliseconds(budget: str) -> float | None:
    """The number of milliseconds; None without a budget."""
    return float(budget.removesuffix("ms")) if budget else None
