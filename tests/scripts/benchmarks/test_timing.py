"""Contestants take turns; nothing is asserted of how long they take."""

import torch

from scripts.benchmarks.timing import interleaved, ratio, square_product

CPU = torch.device("cpu")


def test_contestants_take_turns(capsys):
    calls = []
    seconds = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3, CPU)
    assert calls == ["a", "b"] * 3
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}
    assert all(value > 0 for values in seconds.values() for value in values)
    assert capsys.readouterr().err.count("round ") == 3


def test_a_short_call_is_repeated_and_counts_with_its_mean():
    calls = []
    seconds = interleaved({"a": lambda: calls.append(1)}, 1, CPU, least=0.01)
    assert len(calls) > 1
    assert seconds["a"][0] * len(calls) >= 0.01


def test_a_ratio_compares_each_round_with_itself():
    assert ratio([2.0, 30.0, 9.0], [1.0, 10.0, 1.0]) == 3.0


def test_the_square_product_is_counted_as_torch_counts_it():
    from torch.utils.flop_counter import FlopCounterMode

    name, work, flops = square_product(CPU, torch.float32)
    assert name == "matrix product, 2048 × 2048"
    with FlopCounterMode(display=False) as counted:
        work()
    assert counted.get_total_flops() == flops
