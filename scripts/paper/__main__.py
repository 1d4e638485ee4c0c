"""The tables and figures of Thonet et al. 2021, and studies of `rerank fit`, one command each.

python -m scripts.paper table1 | table2 | table3 | table4 | figure3 | figure4 ARGUMENTS
"""

import importlib
import sys

from rerank.utils.errors import UserError

COMMANDS = ("table1", "table2", "table3", "table4", "figure3", "figure4")


def main(words: list[str]) -> None:
    """Runs a command; a mistake is one line and exit code 2."""
    if not words or words[0] not in COMMANDS:
        got = words[0] if words else "none"
        sys.exit(f"scripts.paper: {got}: no such command; expected one of {', '.join(COMMANDS)}")
    try:
        importlib.import_module(f"scripts.paper.{words[0]}").main(words[1:])
    except UserError as error:
        print(f"scripts.paper {words[0]}: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
