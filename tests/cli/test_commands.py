"""The program itself: help, version, completion, exit codes."""

import re
import shlex
import subprocess
import sys

import pytest

from rerank.cli.app import COMMANDS, make_app
from rerank.cli.main import main


def run(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


def test_a_new_process_prints_the_help_without_importing_a_command_or_one_line_for_a_mistake():
    code = "import sys; from rerank.cli.main import main; main([]); print('rerank.config' in sys.modules)"
    out = run("-c", code).stdout
    assert out.startswith("Usage: rerank COMMAND")
    assert out.endswith("False\n")
    places = [out.index(f"│ {name} ") for name in COMMANDS]
    assert places == sorted(places)
    done = run("-m", "rerank", "train", "--nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rerank: Unknown option")


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_fits_its_width_and_describes_every_flag(capsys, monkeypatch, columns, command):
    monkeypatch.setenv("COLUMNS", columns)
    for more in ([], ["all"]):
        main([command, "--help", *more])
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= int(columns)
        assert len(lines) <= 60 or more
    for argument in make_app()[command].assemble_argument_collection(parse_docstring=True):
        if argument.show:
            assert argument.parameter.help, argument.name


def test_the_first_screen_has_an_example_and_short_flags_and_all_the_rest(capsys):
    def flags(*words):
        main(["train", "--help", *words])
        printed = capsys.readouterr().out
        assert "Example: rerank train --collection my-collection" in printed
        return set(re.findall(r"--[\w.-]+", printed.partition("─ Parameters ─")[2]))

    first, everything = flags(), flags("all")
    assert {"--fold", "--config", "--loss", "--encoder", "--epochs"} <= first
    assert "--training.clip" not in first
    assert {"--fold", "--lists.relevant", "--training.clip", "--loss.alpha"} <= everything


def test_the_examples_in_the_help_are_commands():
    assert [name for name, text in COMMANDS.items() if "Example: " not in text] == ["demo", "doctor"]  # take nothing
    examples = [text.partition("Example: rerank ")[2] for text in COMMANDS.values() if "Example: " in text]
    for example in examples:
        make_app().parse_args(shlex.split(example), exit_on_error=False, print_error=False)


def test_the_version_is_printed(capsys):
    main(["--version"])
    assert capsys.readouterr().out.strip()[0].isdigit()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_flags(tmp_path, monkeypatch, shell):
    monkeypatch.setenv("HOME", str(tmp_path))
    main(["--install-completion", "--shell", shell, "--output", str(tmp_path / "script")])
    script = (tmp_path / "script").read_text()
    assert all(name in script for name in COMMANDS)
    assert all(flag in script for flag in ("training.lr", "batch-size", "first-stage.depth", "install-completion"))
