"""Reads registered functions, such as losses and poolings, from their source code, so that help needs no torch.

A registered function has a decorator with its name: `@loss("hinge")`, `@pooling("mean")`.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TYPES: dict[str, type] = {"float": float, "int": int, "bool": bool, "str": str}
"""The types of hyperparameters. Parameters of other types, such as tensors, are not settings."""


@dataclass(frozen=True)
class Hyperparameter:
    """A parameter of a registered function that can be set by a flag."""

    type: type
    default: Any
    description: str
    """From the section "Args" of the docstring; empty if the docstring does not mention it."""


@dataclass(frozen=True)
class Registered:
    """A registered function as its source describes it."""

    name: str
    docstring: str
    hyperparameters: dict[str, Hyperparameter]

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.docstring.partition("\n")[0]

    def section(self, title: str) -> str:
        """The text of a section of the docstring, such as "Reference", without its indentation; empty if missing."""
        return _section(self.docstring, title)


def registered(path: Path, decorator: str) -> dict[str, Registered]:
    """The functions that are decorated with @decorator("name") in a Python file, or in the files of a folder.

    Args:
        path: a Python file or a folder; sub-folders are not read.
        decorator: the decorator's name.

    Returns:
        Each function by its name, sorted by name.

    Raises:
        ValueError: a name is used twice or is not a string literal.
    """
    functions: dict[str, Registered] = {}
    for file in sorted(path.glob("*.py")) if path.is_dir() else [path]:
        for function in _registered_in(file, decorator):
            if function.name in functions:
                raise ValueError(f"{file}: @{decorator}({function.name!r}): this name is used twice")
            functions[function.name] = function
    return dict(sorted(functions.items()))


def describe(name: str, function: Callable[..., Any]) -> Registered:
    """As `registered`, for a function that exists, such as one that was registered in a notebook."""
    docstring = inspect.getdoc(function) or ""
    descriptions = _descriptions(docstring)
    hyperparameters = {}
    for key, parameter in inspect.signature(function).parameters.items():
        annotation = getattr(parameter.annotation, "__name__", parameter.annotation)
        if annotation in TYPES:
            hyperparameters[key] = Hyperparameter(TYPES[annotation], parameter.default, descriptions.get(key, ""))
    return Registered(name, docstring, hyperparameters)


def describe_losses() -> dict[str, Registered]:
    """All losses by name: those of rerank/losses, and those registered since, if rerank.losses is imported."""
    losses = registered(Path(__file__).parents[1] / "losses", "loss")
    imported = sys.modules.get("rerank.losses")
    functions = getattr(imported, "LOSSES", {})
    return losses | {name: describe(name, function) for name, function in functions.items() if name not in losses}


def describe_hyperparameters() -> dict[str, dict[str, Hyperparameter]]:
    """The hyperparameters of all losses: for each name, the losses that have it.

    >>> describe_hyperparameters()["margin"]["hinge"].default
    1.0
    """
    losses: dict[str, dict[str, Hyperparameter]] = {}
    for loss in describe_losses().values():
        for key, hyperparameter in loss.hyperparameters.items():
            losses.setdefault(key, {})[loss.name] = hyperparameter
    return losses


@cache
def _registered_in(file: Path, decorator: str) -> list[Registered]:
    text = file.read_text(encoding="utf-8")
    if f"@{decorator}(" not in text:
        return []
    functions = []
    for node in ast.parse(text).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == decorator:
                name = call.args[0] if call.args else None
                if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
                    raise ValueError(f'{file}:{call.lineno}: expected a string literal: @{decorator}("name")')
                functions.append(_from_source(name.value, node))
    return functions


def _from_source(name: str, function: ast.FunctionDef) -> Registered:
    docstring = ast.get_docstring(function) or ""
    descriptions = _descriptions(docstring)
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + [*arguments.defaults]
    parameters = zip([*positional, *arguments.kwonlyargs], [*defaults, *arguments.kw_defaults], strict=True)
    hyperparameters = {}
    for parameter, default in parameters:
        annotation = ast.unparse(parameter.annotation) if parameter.annotation else ""
        if annotation in TYPES and default is not None:
            hyperparameters[parameter.arg] = Hyperparameter(
                TYPES[annotation], _value(default), descriptions.get(parameter.arg, "")
            )
    return Registered(name, docstring, hyperparameters)


def _value(node: ast.expr) -> Any:
    """The value of a literal; the source of another expression, such as the name of a constant."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)


def _descriptions(docstring: str) -> dict[str, str]:
    """The descriptions of the parameters in the section "Args"."""
    descriptions: dict[str, str] = {}
    name = ""
    for line in _section(docstring, "Args").splitlines():
        if not line.startswith(" "):
            name, _, line = line.partition(":")
        descriptions[name] = f"{descriptions.get(name, '')} {line.strip()}".strip()
    return descriptions


def _section(docstring: str, title: str) -> str:
    _, _, after = f"\n{docstring}".partition(f"\n{title}:\n")
    lines = []
    for line in after.splitlines():
        if line and not line.startswith(" "):
            break
        lines.append(line)
    return textwrap.dedent("\n".join(lines)).strip()
