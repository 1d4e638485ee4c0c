"""`python -m scripts.campaign` with a small bound, and a planted fault."""

import re

import pytest

from scripts.campaign import campaign, trials
from scripts.campaign.commands import main
from scripts.campaign.forked import Command
from tests.support.paths import ROOT
from tests.support.small_collection import failed


def ended(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


def rows_of(report: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in report.splitlines() if line[:1] == "|"]


def test_a_campaign_prints_what_it_tried_and_what_held(capsys):
    assert ended("--seed", "3", "--only", "measures,inputs", "--trials", "1") == 0
    report = capsys.readouterr().out
    assert re.match(r"Seed 3, \d minutes?, .*\d cores of ", report)
    head, _, *rows = rows_of(report)
    assert head == ["kind", "tried", "held", "broken"]
    assert rows == [["measures", "1", "1", "0"], ["inputs", "1", "1", "0"], ["all", "2", "2", "0"]]


@pytest.fixture
def fault(monkeypatch):
    def faulty(trial: trials.Trial) -> None:
        words = (str(trial.rng.randrange(10**9)),)
        trial.run(trial.folder, Command(words, "tests.scripts.campaign.planted:fail"))

    def skipped(trial: trials.Trial) -> None:
        raise trials.SkippedError("not on this system")

    monkeypatch.setattr(campaign, "KINDS", {"faulty": faulty, "skipped": skipped})


@pytest.mark.usefixtures("fault")
def test_a_broken_trial_is_reported_and_can_be_repeated(capsys):
    assert ended("--seed", "3", "--trials", "2") == 1
    report = capsys.readouterr().out
    assert rows_of(report)[2:] == [["faulty", "2", "0", "2"], ["skipped", "0", "0", "0"], ["all", "2", "0", "2"]]
    assert "skipped: 2 skipped" in report
    shown = [line for line in report.splitlines() if line.startswith("    did: ")]
    seen = [line for line in report.splitlines() if line.startswith("         OSError: planted ")]
    assert len(shown) == len(seen) == 2
    again = "faulty:1 broke; again: python -m scripts.campaign --seed 3 --trial faulty:1"
    assert again in report
    assert "saw: prints 'Traceback (most recent'" in report
    assert ended("--seed", "3", "--trial", "faulty:1") == 1
    repeated = capsys.readouterr().out
    assert again in repeated
    assert seen[1] in repeated
    assert seen[0] not in repeated


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--only", "kils"], "kils: no such kind of trial"), (["--trial", "kills"], "--trial kills: expected a kind and")],
)
def test_a_mistake_is_one_line(capsys, words, expected):
    assert expected in failed(capsys, *words, main=main)


def test_the_documentation_says_what_each_kind_does():
    rows = rows_of((ROOT / "docs" / "reliability.md").read_text())
    assert [row[0] for row in rows if len(row) == 2][2:] == list(trials.KINDS)
