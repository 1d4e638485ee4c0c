"""`python -m scripts.campaign` with a small bound, and planted faults."""

import json
import signal
import sys

import pytest

from rerank.cli.app import make_app
from scripts.campaign import campaign, neighbours, trials
from scripts.campaign.campaign import main
from scripts.campaign.contents import contents, differences
from scripts.campaign.processes import Command, run_together
from scripts.campaign.world import CASES, write_world
from tests.support.paths import ROOT
from tests.support.small_collection import exit_code, failed

FAULT = (sys.executable, "-c", "import sys; raise OSError(f'planted {sys.argv[1]}')")


def python(code: str, **what_happens) -> Command:
    return Command((), (sys.executable, "-c", code), **what_happens)


def rows_of(report: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in report.splitlines() if line[:1] == "|"]


def test_every_command_of_a_trial_is_one_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    for words in [*(case.words for case in CASES.values()), *neighbours.COMMANDS.values()]:
        make_app().parse_args(words, exit_on_error=False, print_error=False)


@pytest.fixture
def fault(monkeypatch):
    def faulty(trial: trials.Trial) -> None:
        words = (str(trial.rng.randrange(10**9)),)
        trial.run(trial.folder, Command(words, FAULT))

    def skipped(trial: trials.Trial) -> None:
        raise trials.SkippedError("not on this system")

    monkeypatch.setattr(campaign, "KINDS", {"faulty": faulty, "skipped": skipped})


@pytest.mark.usefixtures("fault")
def test_a_broken_trial_is_reported_and_can_be_repeated(capsys):
    assert exit_code("--seed", "3", "--trials", "2", main=main) == 1
    report = capsys.readouterr().out
    assert rows_of(report)[2:] == [["faulty", "2", "0", "2"], ["skipped", "0", "0", "0"], ["all", "2", "0", "2"]]
    assert "skipped: 2 skipped" in report
    shown = [line for line in report.splitlines() if line.startswith("    did: ")]
    seen = [line for line in report.splitlines() if line.startswith("         OSError: planted ")]
    assert len(shown) == len(seen) == 2
    again = "faulty:1 broke; again: python -m scripts.campaign --seed 3 --trial faulty:1"
    assert again in report
    assert "saw: prints 'Traceback (most recent'" in report
    assert exit_code("--seed", "3", "--trial", "faulty:1", main=main) == 1
    repeated = capsys.readouterr().out
    assert again in repeated
    assert seen[1] in repeated
    assert seen[0] not in repeated


def test_commands_at_the_same_time_with_signals_and_limits(tmp_path):
    greeting, killed, endless, limited, refused, parent = run_together(
        tmp_path,
        [
            python("import os, sys; print('a', os.environ['B']); print('aside', file=sys.stderr); sys.exit(2)"),
            python("import time; time.sleep(60)", signals=((0.1, int(signal.SIGTERM)),)),
            python("import time; time.sleep(60)", limit=0.2),
            python("import pathlib; pathlib.Path('file').write_bytes(b'x' * 1000)", largest_file=100),
            python("import os; os.mkdir('in', 0o555); open('in/file', 'w')", obeys_permissions=True),
            python("import subprocess; subprocess.Popen(['sleep', '0.5'])"),
        ],
        {"B": "b"},
    )
    assert (greeting.code, greeting.out, greeting.err) == (2, "a b\n", "aside\n")
    assert (killed.code, killed.hung) == (-signal.SIGTERM, False)
    assert (endless.code, endless.hung) == (-signal.SIGKILL, True)
    assert "File too large" in limited.err
    assert (tmp_path / "file").stat().st_size == 100
    assert "Permission denied" in refused.err
    assert (parent.code, parent.orphans) == (0, False)  # it was waited for


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--only", "kils"], "kils"), (["--trial", "kills"], "--trial kills: expected a kind and a number")],
)
def test_a_mistake_is_one_line(capsys, words, expected):
    assert expected in failed(capsys, *words, main=main)


def test_the_documentation_says_what_each_kind_does():
    page = (ROOT / "docs" / "reliability.md").read_text()
    rows = rows_of(page.partition("## Kinds of trials\n")[2].partition("\n## ")[0])
    assert [row[0] for row in rows if len(row) == 2][2:] == list(campaign.KINDS)


def test_times_locks_and_the_index_do_not_count_and_every_other_difference_does(tmp_path):
    for name, seconds in (("first", 1.5), ("second", 2.5)):
        folder = tmp_path / name
        (folder / "index").mkdir(parents=True)
        (folder / "index" / f"segments_{seconds}").touch()
        (folder / f"{name}.lock").touch()
        (folder / "log.jsonl").write_text(json.dumps({"loss": 1, "seconds": seconds}) + "\n")
        (folder / "manifest.json").write_text(json.dumps({"facts": [{"seconds": seconds}], "epochs": 2}))
    before, folder = contents(tmp_path / "first"), tmp_path / "second"
    assert sorted(before) == ["log.jsonl", "manifest.json"]
    assert differences(before, contents(folder), set()) == []
    (folder / "manifest.json").write_text('{"epochs": 3}')
    (folder / "log.jsonl").unlink()
    (folder / "new").touch()
    found = differences(before, contents(folder), set())
    assert found == ["log.jsonl is missing", "manifest.json differs", "new is not expected"]
    assert differences(before, contents(folder), {"log.jsonl", "new"}) == ["manifest.json differs"]
