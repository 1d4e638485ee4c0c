"""The one line that a wrong command prints."""

import os

from cyclopts import UnknownOptionError, ValidationError

from rerank.cli.settings import setting_flags
from rerank.cli.suggestions import suggest_flags
from rerank.utils.errors import one_line

LONGEST = 2000
"""Characters of a line; of a longer one, the middle is left out."""


def message(error: Exception) -> str:
    """The message of a UserError, or of an error of cyclopts or the system in the same style, in one line."""
    text = str(error)
    if isinstance(error, UnknownOptionError):
        text = _unknown_flag(error)
    elif isinstance(error, ValidationError) and error.argument and error.exception_message:
        text = _invalid_value(error)
    elif isinstance(error, OSError):
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    return one_line(" ".join(text.split()))


def _unknown_flag(error: UnknownOptionError) -> str:
    word = (error.token.keyword or error.token.value).partition("=")[0]
    command = " ".join(["rerank", *(error.command_chain or ())])
    settings = setting_flags()
    if word in settings:
        return f"{word}: has no effect on `{command}`, which does not take it"
    flags = [name for argument in error.argument_collection if argument.parse for name in argument.names]
    if near := suggest_flags(word, flags):
        return f"Unknown option: {word}. Did you mean {' or '.join(near)}?"
    if near := suggest_flags(word, settings):
        return f"Unknown option: {word}. `{command}` does not take {near[0]}; `{command} --help` lists the options"
    return f"Unknown option: {word}. `{command} --help` lists the options"


def _invalid_value(error: ValidationError) -> str:
    assert error.argument is not None  # as the caller checked
    token = error.argument.tokens[0] if error.argument.tokens else None
    source = f"{token.source}: " if token and token.source not in ("", "cli") else ""
    return f"{source}{error.argument.name}: got {error.argument.value}, {error.exception_message}"
