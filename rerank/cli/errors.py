"""The one line that a wrong command prints."""

import os

from cyclopts import UnknownOptionError, ValidationError

from rerank.config.flags import setting_flags
from rerank.utils.errors import one_line

LONGEST = 2000
"""Characters of a line; of a longer one, the middle is left out."""


def message(error: Exception) -> str:
    """The message of a UserError, or of an error of cyclopts or the system in the same style, in one line."""
    text = str(error)
    if isinstance(error, UnknownOptionError):
        flag = (error.token.keyword or error.token.value).partition("=")[0]
        if flag in setting_flags():
            command = " ".join(["rerank", *(error.command_chain or ())])
            text = f"{flag}: has no effect on `{command}`, which does not take it"
    elif isinstance(error, ValidationError) and error.argument and error.exception_message:
        token = error.argument.tokens[0] if error.argument.tokens else None
        source = f"{token.source}: " if token and token.source not in ("", "cli") else ""
        text = f"{source}{error.argument.name}: got {error.argument.value}, {error.exception_message}"
    elif isinstance(error, OSError):
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"
    return one_line(" ".join(text.split()))
