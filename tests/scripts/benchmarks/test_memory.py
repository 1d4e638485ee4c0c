"""Peaks of memory, and processes that may run out of it."""

import os
import signal

import pytest
import torch

from scripts.benchmarks.memory import in_fresh_process, peak_memory

CPU = torch.device("cpu")
MEGABYTES = 64


def hold(megabytes):
    torch.ones(megabytes * 250_000).sum()


def peaks_of_two():
    return [peak_memory(lambda size=size: hold(size), CPU) for size in (MEGABYTES, 1)]


def too_much():
    hold(10_000_000)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does where memory is out


def broken():
    raise RuntimeError("something else")


def test_a_peak_is_that_of_its_work_alone():
    large, small = in_fresh_process(peaks_of_two)
    assert large.most - large.before == pytest.approx(MEGABYTES * 1e6, rel=0.2)
    assert small.most - small.before < 0.3 * MEGABYTES * 1e6  # though it came after the large one


def test_memory_that_does_not_suffice_is_none_and_another_mistake_is_raised():
    assert in_fresh_process(too_much) is None
    assert in_fresh_process(killed) is None
    with pytest.raises(RuntimeError, match="something else"):
        in_fresh_process(broken)
