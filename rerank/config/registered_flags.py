"""The flags of losses, their hyperparameters and poolings, made from the registered functions."""

from typing import Annotated, Any, TypedDict, Union

from cyclopts import Parameter

from rerank.config.registered import describe_hyperparameters, describe_losses, describe_poolings
from rerank.utils.errors import nearest
from rerank.utils.parameters import Whole


def loss_flag() -> Any:
    """The type of --loss, whose help names all losses."""
    return Annotated[str, Parameter(alias="--loss", help=f"One of {', '.join(describe_losses())}.")]


def hyperparameter_flags() -> Any:
    """The flags --loss.KEY and the keys of [loss]: one for each hyperparameter of any loss, with its type and help."""
    flags = {}
    for key, losses in describe_hyperparameters().items():
        types = [Whole if of_loss.type is int else of_loss.type for of_loss in losses.values()]
        description = next((of_loss.description for of_loss in losses.values() if of_loss.description), "")
        names_by_default: dict[str, list[str]] = {}
        for name, of_loss in losses.items():
            names_by_default.setdefault(str(of_loss.default), []).append(name)
        defaults = "; ".join(f"{', '.join(names)}: {value}" for value, names in names_by_default.items())
        first, _, rest = description.partition(" ")
        description = f"{first.capitalize() if first.isalpha() else first} {rest}"  # p@K and l2 are values
        text = f"{description} [default of {defaults}]"
        flags[key] = Annotated[Union[*types], Parameter(help=text)]
    return Annotated[TypedDict("Hyperparameters", flags, total=False), Parameter(name="*")]  # type: ignore[operator]


def pooling_flag() -> Any:
    """The type of --encoder.pooling, whose help names all poolings."""
    text = f"How the scores of a document's passages become its score: one of {', '.join(describe_poolings())}."
    return Annotated[str, Parameter(help=text, validator=_check_pooling)]


def _check_pooling(type_: Any, value: Any) -> None:
    if value not in (poolings := describe_poolings()):
        raise ValueError(f"no such pooling; {nearest(value, poolings)}")
