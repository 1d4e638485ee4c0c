"""What a GPU would do, counted on a fake device: launches, bytes, copies and synchronisations."""

import pytest

from scripts.benchmarks.gpu_counts import count
from tests.support.fake_cuda import library

pytestmark = pytest.mark.skipif(bool(library.why_not()), reason=library.why_not() or "a fake device")


@pytest.fixture(scope="module")
def counts():
    """Of two of bert-base's layers in bf16."""
    return count(["step", "score"], "bert-base", 2, "bf16")


@pytest.mark.parametrize(
    ("what", "launches", "gigabytes", "up", "waits"), [("step", 136, 6.85, 0, 1), ("score", 50, 10.85, 0, 1)]
)
def test_nothing_is_done_more_often_than_it_was(counts, what, launches, gigabytes, up, waits):
    """Each further layer adds 48 launches and 3.80 GB to a step: 616 and 44.9 GB with bert-base's twelve."""
    found = counts[what]
    assert sum(found["launches"].values()) <= launches
    assert sum(found["bytes"].values()) <= gigabytes * 1e9
    assert sum(found["blocking_copies"].values()) <= up
    assert sum(found["synchronisations"].values()) <= waits


def test_the_products_are_those_of_the_layers_and_the_head(counts):
    """Compiled layers have one product for queries, keys and values."""
    assert counts["score"]["launches"]["matrix products"] == 2 * (4 + 2) + 1
    assert counts["step"]["launches"]["matrix products"] == 3 * (2 * (2 + 2) + 1)


def test_a_step_reads_and_writes_adams_state_once(counts):
    parameters = 2 * (12 * 768**2 + 13 * 768) + (30_522 + 512 + 2 + 2) * 768 + 769
    assert counts["step"]["bytes"]["optimizer"] == pytest.approx(7 * 4 * parameters, rel=1e-4)
