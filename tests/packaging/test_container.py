"""The Dockerfile and compose.yaml: what they copy exists, and what they start is a command of ours."""

import re
import shlex

import yaml

from rerank.cli.app import make_app
from tests.support.paths import ROOT

TEXT = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
INSTRUCTIONS = [line.split(maxsplit=1) for line in re.sub(r"\\\n\s*", "", TEXT).splitlines() if line.strip()]


def test_what_is_copied_exists_and_is_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [rest for name, rest in INSTRUCTIONS if name == "COPY" and "--from" not in rest]
    sources = [source for rest in copied for source in rest.split()[:-1]]
    assert "rerank" in sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored


def test_both_stages_have_the_same_python_and_the_last_one_has_a_user():
    """The virtual environment of the first stage runs in the second."""
    assert len({rest.split()[0] for name, rest in INSTRUCTIONS if name == "FROM"}) == 1
    last = [name for name, _ in INSTRUCTIONS][::-1].index("FROM")
    assert ["USER", "rerank"] in INSTRUCTIONS[-last:]
    assert ["ARG", "cuda=cpu"] in INSTRUCTIONS


def test_the_command_of_compose_is_valid():
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["rerank"]
    make_app().parse_args(service["command"], exit_on_error=False, print_error=False)
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    assert shlex.join(service["command"]).startswith("serve runs/")
    assert "UID" not in re.findall(r"\$\{(\w+)", service["user"])  # bash does not let a command line set UID
