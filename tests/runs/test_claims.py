"""Claims of an experiment's folder: several commands share it, and a dead one holds nothing."""

import signal
import subprocess
import sys

import pytest

from rerank.runs.claims import claim
from rerank.runs.layout import ExperimentFolder
from rerank.utils.errors import UserError

HOLD = """
import sys, time
from pathlib import Path
from rerank.runs.layout import ExperimentFolder
from rerank.runs.claims import claim

held = claim(ExperimentFolder(Path(sys.argv[1])), print)
sys.stdout.flush()
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path):
    return ExperimentFolder(tmp_path / "experiment")


def in_use(folder):
    """What a claim that is released at once is told."""
    told = []
    claim(folder, told.append).release()
    return told[0]


def test_a_claim_holds_until_it_is_released(folder):
    assert not in_use(folder)
    first = claim(folder, lambda in_use: None)
    second = claim(folder, lambda in_use: None)
    assert in_use(folder)
    first.release()
    first.release()
    assert in_use(folder)
    second.release()
    assert not in_use(folder)


def test_what_is_not_settled_is_not_claimed(folder):
    def refuse(in_use):
        raise UserError("other settings")

    with pytest.raises(UserError, match="other settings"):
        claim(folder, refuse)
    assert not in_use(folder)


def test_a_trained_fold_holds_too(folder):
    (folder.path / "fold1" / "state").mkdir(parents=True)
    assert in_use(folder)


def test_a_killed_process_holds_nothing(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder.path)], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "False\n"
        assert in_use(folder)
        process.send_signal(signal.SIGKILL)
    assert not in_use(folder)
