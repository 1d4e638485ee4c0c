"""One registry for each kind of extension that a plug-in may add: a loss, a pooling, a stage, a significance test, …"""

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TypeVar

from rerank.utils.errors import nearest
from rerank.utils.plugins import load_plugins
from rerank.utils.texts import check_name

Value = TypeVar("Value")
Setting = bool | int | float | str
"""A hyperparameter's value."""
SETTING_TYPES: dict[str, type[Setting]] = {"float": float, "int": int, "bool": bool, "str": str}

_REGISTRIES: dict[str, Mapping[str, object]] = {}


class Registry(MutableMapping[str, Value]):
    """Name -> registered value of one kind. Listing the names, or asking for a missing one, imports the plug-ins.

    >>> shapes = Registry("shape")
    >>> shapes.register("circle", round)
    <built-in function round>
    >>> shapes.find("cirle")
    Traceback (most recent call last):
    ValueError: cirle: no such shape; did you mean circle?
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._values: dict[str, Value] = {}
        _REGISTRIES[kind] = self

    def register(self, name: str, value: Value) -> Value:
        """Adds a value and returns it; running the same notebook cell again replaces it.

        Raises ValueError if another function or class has the name.
        """
        other = self._values.get(name, value)
        if _origin(other) != _origin(value):
            raise ValueError(f"{self.kind} {name!r} is registered already, by {_origin(other)}")
        self._values[name] = value
        return value

    def find(self, name: str) -> Value:
        """The value of a name; raises ValueError, with the nearest name, if there is none."""
        if check_name(self.kind, name) not in self:
            raise ValueError(f"{name}: no such {self.kind}; {nearest(name, self)}")
        return self[name]

    def __getitem__(self, name: str) -> Value:
        if name not in self._values:
            load_plugins()
        return self._values[name]

    def __setitem__(self, name: str, value: Value) -> None:
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def registered(kind: str) -> Mapping[str, object]:
    """The values of a kind that are registered so far; none before a module of that kind is imported.

    So help needs no torch.
    """
    load_plugins()
    return _REGISTRIES.get(kind, {})


def hyperparameters(function: Callable[..., object]) -> dict[str, Setting]:
    """The hyperparameters of a registered function, with defaults: its parameters of the types bool, int, float or str.

    >>> def scaled(scores: list[float], scale: float = 1, steps: int = 3): ...
    >>> hyperparameters(scaled)
    {'scale': 1.0, 'steps': 3}
    """
    found = {}
    for key, parameter in inspect.signature(function).parameters.items():
        kind = SETTING_TYPES.get(getattr(parameter.annotation, "__name__", parameter.annotation))
        if kind and parameter.default is not inspect.Parameter.empty:
            found[key] = kind(parameter.default)
    return found


def _origin(value: object) -> str:
    """The module and name of a function or class, or of an object's class."""
    return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"
