"""The pages of the documentation: their links, and the syntax of code that `scripts/docs --run` does not run."""

import itertools
import re
import shlex
from importlib.util import find_spec

import pytest
from markdown.extensions.toc import slugify
from markdown_it import MarkdownIt

from rerank.cli.app import make_app
from scripts.benchmarks.commands import app as benchmarks
from scripts.pages.blocks import PYTHON, SHELL, blocks_of, commands_of
from tests.support.paths import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), ROOT / "runs" / "README.md"]
BLOCKS = [block for page in PAGES for block in blocks_of(ROOT, page)]
NOT_RUN = {block.place: block for block in BLOCKS if block.not_run}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_has_over_120_characters(page):
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    assert not [(number, line) for number, line in lines if len(line) > 120]


def links_of(page):
    """The targets of the links of a page, outside code."""
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        for inline in token.children or ():
            if inline.type in ("link_open", "image"):
                yield inline.attrs.get("href") or inline.attrs["src"]


def anchors_of(page):
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    titles = [text.content for opening, text in itertools.pairwise(tokens) if opening.type == "heading_open"]
    return {slugify(re.sub(r"[`*]", "", title), "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_of_a_clone(page):
    dead = []
    for link in links_of(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            dead.append(link)
    assert not dead


def test_the_index_of_tests_names_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    index = text[text.index("files in `tests/`") : text.index("## Write a test")]
    named = re.findall(r"`([\w/]+/test_\w+\.py)`", index)
    assert named
    assert not [name for name in named if not (ROOT / "tests" / name).is_file()]


@pytest.mark.parametrize("place", NOT_RUN)
def test_code_that_is_not_run_is_valid(place):
    block = NOT_RUN[place]
    if block.kind == PYTHON:
        compile(block.code, place, "exec")
    elif block.kind == SHELL:
        for command in commands_of(block.code):
            check_command(command)


def check_command(command):
    """A command of rerank has the flags that it names; a script exists."""
    words = shlex.split(command)
    if words[0] == "rerank" and not set(command) & set("$…"):
        make_app().parse_args(words[1:], exit_on_error=False, print_error=False)
    if words[0].startswith("scripts/"):
        assert (ROOT / words[0]).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_modules_and_benchmarks_that_a_page_names_exist(page):
    text = page.read_text(encoding="utf-8")
    for module in re.findall(r"python -m ((?:scripts|tests)[.\w]*)", text):
        assert find_spec(module), module
    for command in re.findall(r"python -m scripts\.benchmarks ([a-z-]+)", text):
        assert command in benchmarks, command
