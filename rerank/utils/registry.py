"""Reads registered functions, such as losses and poolings, from their source code, so that help needs no torch.

A registered function has a decorator with its name: `@loss("hinge")`, `@pooling("mean")`.
"""

import ast
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import docstring_parser

PACKAGE = Path(__file__).parents[1]
TYPES: dict[str, type] = {"float": float, "int": int, "bool": bool, "str": str}  # of hyperparameters; tensors are none


class Hyperparameter(NamedTuple):
    """A parameter of a registered function that can be set by a flag; its description is that of the docstring."""

    type: type
    default: Any
    description: str


class Registered(NamedTuple):
    name: str
    docstring: str
    hyperparameters: dict[str, Hyperparameter]


@cache
def registered(path: Path, decorator: str) -> dict[str, Registered]:
    """The functions that are decorated with @decorator("name") in a Python file, or in the files of a folder, by name.

    Names and defaults must be literals. The folders in a folder are not read.
    """
    functions = []
    for file in path.glob("*.py") if path.is_dir() else [path]:
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text).body if f"@{decorator}(" in text else []
        for node in [node for node in tree if isinstance(node, ast.FunctionDef)]:
            for call in list(node.decorator_list):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == decorator:
                    functions.append(describe(ast.literal_eval(call.args[0]), _stub(file, node)))
    return dict(sorted((function.name, function) for function in functions))


def describe(name: str, function: Callable[..., Any]) -> Registered:
    """As `registered`, for a function that exists, such as one that was registered in a notebook."""
    docstring = inspect.getdoc(function) or ""
    sections = docstring_parser.parse(docstring, style=docstring_parser.DocstringStyle.GOOGLE)
    descriptions = {found.arg_name: " ".join((found.description or "").split()) for found in sections.params}
    hyperparameters = {}
    for key, parameter in inspect.signature(function).parameters.items():
        annotation = getattr(parameter.annotation, "__name__", parameter.annotation)
        if annotation in TYPES:
            hyperparameters[key] = Hyperparameter(TYPES[annotation], parameter.default, descriptions.get(key, ""))
    return Registered(name, docstring, hyperparameters)


def _stub(file: Path, node: ast.FunctionDef) -> Callable[..., Any]:
    """The function without its decorators and its code, so that only its defaults are computed."""
    node.decorator_list, node.body = [], node.body[:1]  # the docstring
    future = ast.parse("from __future__ import annotations").body  # annotations stay text
    namespace: dict[str, Callable[..., Any]] = {}
    exec(compile(ast.Module([*future, node], []), str(file), "exec"), namespace)
    return namespace[node.name]
