"""--budget of `rerank fit` and `rerank serve`."""

from typing import Annotated

from cyclopts import Parameter

from rerank.utils.parameters import Pattern

Budget = Annotated[
    str, Parameter(validator=Pattern(r"\d{1,9}(\.\d{1,9})?ms", "milliseconds, such as 100ms"), show_default=False)
]


def milliseconds(budget: str) -> float | None:
    """The number of milliseconds; None without a budget."""
    return float(budget.removesuffix("ms")) if budget else None
