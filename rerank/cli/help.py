"""The help of a command: `--help` shows the settings that are often changed, `--help all` shows all."""

from collections.abc import Mapping
from dataclasses import fields

from cyclopts import default_name_transform
from cyclopts.help import HelpEntry, HelpPanel
from cyclopts.help.formatters import DefaultFormatter
from rich.console import Console, ConsoleOptions

from rerank.config import Config
from rerank.config.flags import flag_name
from rerank.config.losses import help_of, losses, losses_with, poolings
from rerank.config.settings import OFTEN
from rerank.utils.registry import Setting

SECTIONS = {default_name_transform(section.name) for section in fields(Config)}
"""The titles of the groups of settings."""


class Formatter(DefaultFormatter):
    """Prints the groups of flags; without `whole`, only the settings that are often changed."""

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.whole = whole

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Prints one group."""
        if panel.title in SECTIONS and not self.whole:
            return
        entries = [shown for entry in panel.entries for shown in _shown(entry)]
        entries = [entry.copy(default=None) if entry.default == '""' else entry for entry in entries]
        if panel.title == OFTEN.name and not self.whole:
            entries = [entry.copy(positive_names=_short(entry.positive_names)) for entry in entries]
        super().__call__(console, options, panel.copy(entries=entries))


def _shown(entry: HelpEntry) -> list[HelpEntry]:
    """The entry, completed with the registered losses or poolings, and an entry for each hyperparameter of a loss."""
    if "--loss.name" in entry.names:
        listed = (f"{name} ({' '.join(keys)})" if keys else name for name, keys in losses().items())
        return [entry.copy(description=f"Loss, and its hyperparameters (--loss.KEY): {', '.join(listed)}.")]
    if "--encoder.pooling" in entry.names:
        return [entry.copy(description=f"How passage scores become a document's score: {', '.join(poolings())}.")]
    if entry.names == ("--loss",):
        return [_hyperparameter(key, defaults) for key, defaults in losses_with().items()]
    return [entry]


def _short(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if "." not in name)


def _hyperparameter(key: str, by_loss: Mapping[str, Setting]) -> HelpEntry:
    by_default: dict[str, list[str]] = {}
    for loss, default in by_loss.items():
        by_default.setdefault(str(default), []).append(loss)
    kind = type(next(iter(by_loss.values())))
    defaults = "; ".join(f"{', '.join(names)}: {value}" for value, names in by_default.items())
    return HelpEntry(
        positive_names=(flag_name("loss", key),),
        negative_names=(flag_name("loss", f"no_{key}"),) if kind is bool else (),
        metavar=None if kind is bool else kind.__name__.upper(),
        description=f"{help_of(key)} [default of {defaults}]",
    )
