"""Plug-ins: modules that register losses, poolings, stages, formats, significance tests and trackers.

A package names its modules as entry points of the group "rerank". `--plugin` names a module for one command, and its
processes read the names from the environment. A registry calls `load_plugins` before it is read.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from rerank.utils.errors import UserError

GROUP = "rerank"
VARIABLE = "RERANK_PLUGINS"  # environment variable with the modules of `--plugin`, separated by commas
_begun: set[str] = set()


def load_plugins() -> None:
    """Imports the plug-ins that are not imported yet; raises UserError for a plug-in that cannot be imported."""
    for point in _installed():
        package = point.dist.name if point.dist else point.name
        _load(f"plug-in {point.value} of the package {package}", point.load)
    for module in named_plugins():
        _load(f"--plugin {module}", partial(importlib.import_module, module))


def add_plugins(modules: Sequence[str]) -> None:
    """Adds plug-in modules for this process and its children; they may be in the working directory."""
    if modules:
        os.environ[VARIABLE] = ",".join(dict.fromkeys([*named_plugins(), *modules]))
        sys.path.append(str(Path.cwd()))


def named_plugins() -> list[str]:
    """The modules of `--plugin`."""
    return [module for module in os.environ.get(VARIABLE, "").split(",") if module]


def plugin_versions() -> dict[str, str]:
    """Versions of the packages with plug-ins and of the modules of `--plugin`; "" for a module without a version."""
    of_packages = {point.dist.name: point.dist.version for point in _installed() if point.dist}
    return of_packages | {name: str(getattr(sys.modules.get(name), "__version__", "")) for name in named_plugins()}


@cache
def _installed() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def _load(what: str, load: Callable[[], object]) -> None:
    if what in _begun:  # finished, or begun by a plug-in that reads a registry while it is imported
        return
    _begun.add(what)
    try:
        load()
    except KeyboardInterrupt:
        _begun.discard(what)
        raise KeyboardInterrupt(f"{what}: its import had not ended") from None
    except BaseException as error:  # sys.exit too: an import ends no command
        _begun.discard(what)
        raise UserError(f"{what}: cannot be imported: {type(error).__name__}: {error}") from error
