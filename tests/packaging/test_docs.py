"""The commands and the Python code that the documentation shows."""

import re
import shlex

import pytest

import rerank
from rerank.cli.app import make_app
from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
COMMANDS = [command for page in PAGES for command in re.findall(r"^    (rerank .*)$", page.read_text(), re.MULTILINE)]
PYTHON = [code for page in PAGES for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_valid(command):
    words = shlex.split(re.sub(r"--plugin \S+ |--config my\.toml ?", "", command), comments=True)
    make_app().parse_args(words[1:], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("code", PYTHON)
def test_python_code_is_valid(code):
    compile(code, "docs", "exec")


def test_names_in_python_code_are_public():
    names = {name for code in PYTHON for name in re.findall(r"\brerank\.(\w+)", code)}
    assert names <= set(rerank.__all__)
