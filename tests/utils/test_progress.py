"""Progress without a terminal: plain lines, now and then."""

import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from rerank.utils import progress as module
from rerank.utils.progress import Costs, log, progress, progress_by_cost, quiet, say_how_long, timed_sample


def test_it_hands_on_every_item_and_prints_plain_lines(capsys, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    assert list(progress(range(4), 4, "counting", lambda: "loss 0.5")) == [0, 1, 2, 3]
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["counting: 1/4 loss 0.5", "counting: 2/4 loss 0.5", "counting: 3/4, 0 s left loss 0.5"]


def test_work_that_was_done_before_counts(capsys, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    assert list(progress("cd", 5, "counting", before=2)) == ["c", "d"]
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == ["counting: 3/5", "counting: 4/5"]


def test_the_time_left_counts_from_the_first_item_on(capsys, monkeypatch):
    """Each reading of the clock is 200 s after the one before."""
    monkeypatch.setattr(module.time, "monotonic", iter(range(0, 100_000, 200)).__next__)
    assert list(progress("abc", 40, "embedding")) == ["a", "b", "c"]
    assert capsys.readouterr().err.splitlines() == [
        "embedding: 1/40",
        "embedding: 2/40",
        "embedding: 3/40, 2 h 3 min left",
    ]


def test_quick_work_and_silent_processes_print_nothing(capsys, monkeypatch):
    assert list(progress(range(4), 4, "counting")) == [0, 1, 2, 3]
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    assert list(progress(range(4), 4, "counting", show=False)) == [0, 1, 2, 3]
    assert capsys.readouterr().err == ""


def test_a_closed_terminal_ends_a_command_and_no_thread_of_a_server(monkeypatch):
    def closed(*_):
        raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=closed, flush=closed))
    with pytest.raises(BrokenPipeError):
        log.info("a line")
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(log.info, "a line").exception() is None


def test_the_level_of_a_logger_returns_when_the_last_of_overlapping_blocks_ends():
    logger = logging.getLogger("another.library")
    logger.setLevel(logging.INFO)
    first, second = quiet("another.library"), quiet("another.library", level=logging.CRITICAL)
    first.__enter__()
    second.__enter__()
    assert logger.level == logging.CRITICAL
    first.__exit__(None, None, None)
    assert logger.level == logging.CRITICAL
    second.__exit__(None, None, None)
    assert logger.level == logging.INFO


class Clock:
    """A clock that stands still until work takes time."""

    def __init__(self, monkeypatch):
        self.seconds = 0.0
        for name in ("monotonic", "perf_counter"):
            monkeypatch.setattr(module.time, name, lambda: self.seconds)

    def spend(self, seconds):
        self.seconds += seconds


def test_the_time_left_weighs_items_by_their_costs(capsys, monkeypatch):
    """Three quick items and then one that costs as much as ninety-seven of them."""
    clock = Clock(monkeypatch)
    costs = Costs(lambda item: 97.0 if item == "slow" else 1.0, 100.0)
    for _ in progress_by_cost(["a", "b", "c", "slow"], 4, "training", costs, lambda: "1 failed"):
        clock.spend(20)
    assert capsys.readouterr().err.splitlines() == [
        "training: 1/4 1 failed",
        "training: 2/4 1 failed",
        "training: 3/4, 32 min left 1 failed",
    ]


def test_a_measurement_lasts_a_second_and_leaves_out_the_first_item(monkeypatch):
    clock, done = Clock(monkeypatch), []

    def work(seconds):
        clock.spend(seconds)
        done.append(seconds)

    assert timed_sample(work, [9.0, *[0.3] * 50]) == pytest.approx(0.3)
    assert len(done) == 5
    done.clear()
    assert timed_sample(work, [9.0, 2.0, 3.0, 4.0, 100.0]) == pytest.approx(3.0)  # three at least
    assert timed_sample(work, [9.0]) == pytest.approx(9.0)
    assert timed_sample(work, []) == 0.0


def test_it_is_said_how_long_work_takes_if_it_takes_long(capsys):
    say_how_long("embedding 1,400 documents", 150.0)
    say_how_long("training 8 lists", 2.0)
    assert capsys.readouterr().err.splitlines() == ["embedding 1,400 documents: about 2 min", "training 8 lists"]
