"""Batches are built one ahead, in order, and an error comes where its batch would have; a map keeps the order."""

import os
import threading

import pytest

from rerank.utils.errors import UserError
from rerank.utils.parallel import FEW, ordered_map, prefetch


def test_results_come_in_order_whether_computed_here_or_in_processes():
    for count in (0, FEW - 1, FEW, 40):
        assert list(ordered_map(abs, range(-count, 0))) == list(range(count, 0, -1))


def test_a_killed_process_is_one_line():
    with pytest.raises(UserError, match="ended abruptly: killed, as for lack of memory; free memory"):
        list(ordered_map(os._exit, range(FEW)))


def test_the_next_one_is_built_while_the_first_is_used():
    built = {item: threading.Event() for item in range(3)}

    def build(item):
        built[item].set()
        return item

    for item, _ in prefetch(range(3), build):
        if item < 2:
            assert built[item + 1].wait(timeout=30)


def test_an_error_comes_in_its_place():
    items = prefetch([2, 1, 0, 5], lambda item: 1 / item)
    assert [next(items), next(items)] == [(2, 0.5), (1, 1.0)]
    with pytest.raises(ZeroDivisionError):
        next(items)
    assert list(prefetch([], str)) == []
