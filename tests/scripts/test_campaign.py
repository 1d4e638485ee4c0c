"""`python -m scripts.campaign` with a small bound, and planted faults."""

import json
import signal

import pytest

from rerank.cli.app import app
from scripts.campaign import campaign, neighbours, trials
from scripts.campaign.commands import main
from scripts.campaign.contents import contents, differences
from scripts.campaign.forked import Command, Forked
from scripts.campaign.world import CASES, write_world
from tests.support.paths import ROOT
from tests.support.small_collection import exit_code, failed

HERE = "tests.scripts.planted:"


def rows_of(report: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in report.splitlines() if line[:1] == "|"]


def test_every_command_of_a_trial_is_one_of_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    for words in [*(case.words for case in CASES.values()), *neighbours.COMMANDS.values()]:
        app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.fixture
def fault(monkeypatch):
    def faulty(trial: trials.Trial) -> None:
        words = (str(trial.rng.randrange(10**9)),)
        trial.run(trial.folder, Command(words, HERE + "fail"))

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
    forked = Forked()
    greeting, killed, endless, limited = forked.run(
        tmp_path,
        Command(("a", "b"), HERE + "greet"),
        Command((), HERE + "wait", signals=((0.1, int(signal.SIGTERM)),)),
        Command((), HERE + "wait", limit=0.2),
        Command((), HERE + "write", largest_file=100),
    )
    forked.close()
    assert (greeting.code, greeting.out, greeting.err) == (2, f"a b {tmp_path.name}\n", "aside\n")
    assert (killed.code, killed.hung) == (-signal.SIGTERM, False)
    assert (endless.code, endless.hung) == (-signal.SIGKILL, True)
    assert "File too large" in limited.err
    assert (tmp_path / "file").stat().st_size == 100


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--only", "kils"], "kils: no such kind of trial"), (["--trial", "kills"], "--trial kills: expected a kind and")],
)
def test_a_mistake_is_one_line(capsys, words, expected):
    assert expected in failed(capsys, *words, main=main)


def test_the_documentation_says_what_each_kind_does():
    rows = rows_of((ROOT / "docs" / "reliability.md").read_text())
    assert [row[0] for row in rows if len(row) == 2][2:] == list(trials.KINDS)


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
