"""What an id of a document or of a query may be, so that run files, Lucene and folds can hold it."""

from rerank.utils.errors import UserError
from rerank.utils.json_files import shown

LONGEST_ID = 32766
"""Bytes of the longest term of a Lucene index."""


def check_id(name: str, where: str, what: str) -> None:
    """Raises UserError for an id that is empty, has white space or a NUL, or is too long.

    The message begins with `where`, a file and a line, and names the id by `what`.
    """
    if name.split() != [name] or "\0" in name:
        raise UserError(
            f"{where}: {what} {shown(name)} is empty or has white space or a NUL, which no run file can hold"
        )
    if len(name.encode()) > LONGEST_ID:
        raise UserError(f"{where}: {what} {shown(name)} has {len(name.encode())} bytes; expected {LONGEST_ID} at most")
