"""What a GPU would do, counted on a fake device: launches, bytes, copies and synchronisations."""

import pytest

from scripts.benchmarks.gpu_counts import count
from tests.support.fake_cuda import library

pytestmark = pytest.mark.skipif(bool(library.why_not()), reason=library.why_not() or "a fake device")


@pytest.fixture(scope="module")
def counts():
    """Of two of MiniLM's layers in bf16, which have as many launches as bert-base's and are quicker to compile."""
    return count(["step", "score"], "minilm", 2, "bf16")


@pytest.mark.parametrize(
    ("what", "launches", "gigabytes", "up", "waits"), [("step", 136, 3.27, 0, 1), ("score", 50, 5.41, 0, 1)]
)
def test_nothing_is_done_more_often_than_it_was(counts, what, launches, gigabytes, up, waits):
    """Each further layer adds 48 launches to a step: 616 with bert-base's twelve."""
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
    parameters = 2 * (12 * 384**2 + 13 * 384) + (30_522 + 512 + 2 + 2) * 384 + 385
    assert counts["step"]["bytes"]["optimizer"] == pytest.approx(7 * 4 * parameters, rel=1e-4)
