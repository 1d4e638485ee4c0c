"""The Dockerfile and compose.yaml: what they promise, and that the script that runs their steps reads all of them."""

import shlex

import pytest
import yaml

from rerank.cli.app import app
from scripts.container_steps import ROOT, instructions

DOCKERFILE = list(instructions((ROOT / "Dockerfile").read_text()))
KNOWN = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "USER", "ENV", "EXPOSE", "ENTRYPOINT", "CMD"}


def test_every_instruction_of_the_dockerfile_is_read():
    assert {name for name, _ in DOCKERFILE} <= KNOWN
    assert all(rest for _, rest in DOCKERFILE)


def test_what_is_copied_exists_and_is_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    sources = [
        source for name, rest in DOCKERFILE if name == "COPY" and "--from" not in rest for source in rest.split()[:-1]
    ]
    assert "rerank" in sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored


def test_the_container_has_a_user_and_the_cuda_argument():
    last = [name for name, _ in DOCKERFILE][::-1].index("FROM")
    assert ("USER", "rerank") in DOCKERFILE[-last:]
    assert ("ARG", "cuda=cpu") in DOCKERFILE
    assert any("useradd" in rest for name, rest in DOCKERFILE if name == "RUN")


def test_the_base_image_has_the_same_python_in_both_stages():
    """The virtual environment of the first stage runs in the second."""
    assert len({rest.split()[0] for name, rest in DOCKERFILE if name == "FROM"}) == 1


def test_the_command_of_compose_is_valid():
    pytest.importorskip("rerank.cli.serve")
    service = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["rerank"]
    app.parse_args(service["command"], exit_on_error=False, print_error=False)
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    assert shlex.join(service["command"]).startswith("serve runs/")
