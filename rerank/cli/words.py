"""What is taken from the words of a command line before its flags are known: `--plugin` and the section of `--help`."""

from collections.abc import Sequence
from contextvars import ContextVar

from rerank.utils.errors import UserError

PLUGIN, HELP, END, ALL = "--plugin", ("--help", "-h"), "--", "all"
SECTION = ContextVar("section", default=ALL)
"""The section of the settings that the help of a command shows; ALL, or "" for its first screen."""


def take_plugins(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words without `--plugin MODULE`, and the modules; raises UserError for a flag without one."""
    left, modules, given = [], [], iter(words)
    for word in given:
        flag, equals, module = word.partition("=")
        if flag != PLUGIN:
            left.append(word)
            if word == END:
                break
            continue
        module = module if equals else next(given, "")
        if not all(part.isidentifier() for part in module.split(".")):
            raise UserError(f"{PLUGIN}: expected the name of a module, such as my_losses, got {module or 'nothing'}")
        modules.append(module)
    return [*left, *given], modules


def take_section(words: Sequence[str]) -> tuple[list[str], str]:
    """The words without the section after a command's `--help`, and that section: "" if it names none.

    >>> take_section(["train", "--help", "loss"])
    (['train', '--help'], 'loss')
    """
    place = next((place for place, word in enumerate(words) if word in HELP and place), None)
    if place is None:
        return list(words), ALL
    section = next(iter(words[place + 1 :]), "")
    if section.startswith("-"):
        return list(words), ""
    return [*words[: place + 1], *words[place + 2 :]], section
