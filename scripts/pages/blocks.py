"""The code blocks of Markdown pages and of examples, and the notes that say how one is run.

An indented block holds shell commands; a fenced one says what it is. A note is an HTML comment above a block:

    <!-- run: not, because REASON -->               the next block is only checked for its syntax
    <!-- run: nothing on this page, because REASON -->    all blocks below, to the end of the page, likewise
    <!-- run: stand-in OLD => NEW -->               NEW takes the place of OLD in the next block
    <!-- run: prints TEXT -->                       the output of the next block has this text
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from rerank.utils.errors import UserError

SHELL = "shell"
PYTHON = "python"
FILE = "file"
LANGUAGES = {"": SHELL, "bash": SHELL, "sh": SHELL, "python": PYTHON, "toml": FILE, "text": "", "yaml": "", "json": ""}
"""What the languages of fences are run as; "" is not run."""
NOTE = re.compile(r"<!-- run: (.*?) -->", re.DOTALL)
FORMS = "not, because REASON | nothing on this page, because REASON | stand-in OLD => NEW | prints TEXT"
NAMED = re.compile(r"# (\S+\.(?:toml|py))(?: |\n|$)")
"""The first line of a block that is the content of a file."""


@dataclass(frozen=True)
class Block:
    """The code of a page, beginning in a line (from 1) of a file, and what its notes say.

    `file` is the name of the file that the block is the content of, if it says so.
    """

    page: str
    line: int
    kind: str
    code: str
    not_run: str = ""
    stand_ins: tuple[tuple[str, str], ...] = ()
    prints: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Such as README.md:12."""
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        named = NAMED.match(self.code)
        return named[1] if named else ""

    @property
    def runnable(self) -> str:
        """The code with the stand-ins. Raises UserError for one that is not in the block."""
        code = self.code
        for old, new in self.stand_ins:
            if old not in code:
                raise UserError(f"{self.place}: the note names the stand-in of {old!r}, which the block does not have")
            code = code.replace(old, new)
        return code


def blocks_of(root: Path, page: Path) -> list[Block]:
    """The blocks of a Markdown page, or the commands of an example's docstring.

    Raises UserError for a note of another form, a note without a block, and a fence of an unknown language.
    """
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(root) if page.is_relative_to(root) else page)
    if page.suffix != ".py":
        return list(_blocks(name, text))
    docstring = ast.get_docstring(ast.parse(text), clean=False) or ""
    return list(_blocks(name, docstring))


def _blocks(page: str, text: str) -> Iterator[Block]:
    notes: list[tuple[int, str]] = []  # with their lines, since the last block
    rest = ""  # why no block is run from here on
    for token in MarkdownIt().parse(text):
        line = (token.map or [0])[0] + 1
        if token.type == "html_block":
            notes += [(line, " ".join(note.split())) for note in NOTE.findall(token.content)]
            if notes and (whole := re.fullmatch(r"nothing on this page, because (.+)", notes[-1][1])):
                rest = whole[1]
                notes.pop()
        elif token.type in ("fence", "code_block"):
            language = token.info.split(" ")[0]
            if language not in LANGUAGES:
                expected = ", ".join(filter(None, LANGUAGES))
                raise UserError(f"{page}:{line}: a block of {language!r}; expected one of {expected}")
            kind = LANGUAGES[language]
            of_block = _notes(page, notes)
            notes = []
            if kind:
                yield Block(page, line + (token.type == "fence"), kind, token.content, **({"not_run": rest} | of_block))
        elif notes and token.type == "inline":
            break
    if notes:
        raise UserError(f"{page}:{notes[0][0]}: a note on code that no block follows; move it above the block")


def _notes(page: str, notes: list[tuple[int, str]]) -> dict[str, object]:
    """The fields of a block that its notes set."""
    found: dict[str, object] = {}
    stand_ins: list[tuple[str, str]] = []
    prints: list[str] = []
    for line, note in notes:
        if match := re.fullmatch(r"not, because (.+)", note):
            found["not_run"] = match[1]
        elif match := re.fullmatch(r"stand-in (.+?) => (.+)", note):
            stand_ins.append((match[1], match[2]))
        elif match := re.fullmatch(r"prints (.+)", note):
            prints.append(match[1])
        else:
            raise UserError(f"{page}:{line}: run: {note}; expected {FORMS}")
    return found | {"stand_ins": tuple(stand_ins), "prints": tuple(prints)}


def commands_of(code: str) -> list[str]:
    r"""The commands of shell code: a line each, joined where it ends in a backslash, without comments.

    >>> commands_of("rerank fit a  # one\n# two\ncurl b \\\n  c\n")
    ['rerank fit a', 'curl b c']
    """
    lines = re.sub(r"\\\n\s*", "", code).splitlines()
    return [found for line in lines if (found := re.sub(r"(^|\s)#.*", "", line).strip())]
