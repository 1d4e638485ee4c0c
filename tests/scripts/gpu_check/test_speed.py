"""Timings that end in time, and the hours of the paper's table."""

import tomllib
from pathlib import Path

import pytest
import torch

from scripts.benchmarks.training import LIST, paper_hours
from scripts.gpu_check import memory
from scripts.gpu_check.timings import Rate, timed

CPU = torch.device("cpu")


def test_a_timing_takes_as_many_units_as_fit_into_its_seconds(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def work(seconds_per_unit):
        def advance(units):
            clock[0] += units * seconds_per_unit

        return advance

    rates = timed({"fast": work(0.001), "medium": work(0.25), "slow": work(5.0)}, 8, 100, 4.0, 3, CPU)
    assert {name: rate.units for name, rate in rates.items()} == {"fast": 100, "medium": 16, "slow": 8}
    assert [rate.per_second for rate in rates.values()] == pytest.approx([1000, 4, 0.2])
    assert rates["fast"].faster_than(rates["medium"]) == pytest.approx(250)


def test_without_seconds_a_timing_takes_the_least_units():
    rates = timed({"work": lambda units: None}, 3, 100, 0.0, 2, CPU)
    assert (rates["work"].units, len(rates["work"].seconds)) == (3, 2)


def test_a_ratio_is_that_of_units_per_second():
    assert Rate(10, [1.0, 2.0]).faster_than(Rate(5, [1.0, 2.0])) == 2


def test_the_hours_are_those_of_the_configuration_of_robust04():
    config = tomllib.loads(Path("configs/robust04.toml").read_text())
    lists, training = config["lists"], config["training"]
    assert lists["relevant"] + lists["non_relevant"] == LIST
    queries = 250 // config["collection"]["folds"]
    trained = training["lists_per_epoch"] * LIST / 1000
    scored = queries * config["first_stage"]["depth"] / 5000
    trainings = 2 * config["collection"]["folds"]
    assert paper_hours(1000, 5000) == pytest.approx(trainings * training["epochs"] * (trained + scored) / 3600)


def test_on_cuda_memory_is_capped_between_the_small_and_the_whole_work(monkeypatch):
    """With stand-ins for CUDA: what the allocator holds is the tokens of a call."""
    held, caps = [0], []

    class Properties:
        total_memory = 1000

    for name, stand_in in {
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda device: held.__setitem__(0, 0),
        "max_memory_reserved": lambda device: held[0],
        "get_device_properties": lambda device: Properties,
        "set_per_process_memory_fraction": lambda fraction, device: caps.append(fraction),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)

    def work(budget):
        held[0] = budget.tokens
        return torch.zeros(1)

    with memory.short_of_memory(work, 800, torch.nn.Identity(), torch.device("cuda")) as how:
        assert caps == [(100 + 800) / 2 / 1000]
        assert "cap of" in how
    assert caps[1:] == [1.0]
