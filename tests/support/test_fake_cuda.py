"""The counter of the fake device tells what a GPU's host waits for from what it does not."""

import json
import subprocess
import sys

import pytest

from tests.support.fake_cuda import library
from tests.support.paths import ROOT

PROGRAM = """
import json, torch
from torch._subclasses.fake_tensor import FakeTensorMode
from tests.support.fake_cuda.counter import CountingMode

fake = FakeTensorMode(allow_non_fake_inputs=True)
found = []
with fake, CountingMode(fake, "/nowhere") as counting:
    values = torch.tensor([1.0, 2.0, 3.0]).to("cuda")
    torch.ones(2).to("cuda", non_blocking=True)
    torch.ones(2).pin_memory().to("cuda", non_blocking=True)
    mask = torch.tensor([True, False, True]).to("cuda")
    found += [len(values[mask]), (mask.sum() + 1).item(), (values @ torch.zeros(3, 3, device="cuda")).cpu().tolist()]
print(json.dumps({"found": found, **vars(counting.counts)}))
"""


@pytest.mark.skipif(bool(library.why_not()), reason=library.why_not() or "a fake device")
def test_copies_from_ordinary_memory_block_and_values_that_come_back_are_waited_for():
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=library.environment(), check=True, capture_output=True, text=True
    ).stdout
    counts = json.loads(printed)
    length, number, product = counts["found"]
    assert (length, number) == (2, 3)
    assert len(product) == 3
    assert list(counts["blocking_copies"].values()) == [3]
    assert list(counts["other_copies"].values()) == [1]
    assert list(counts["synchronisations"].values()) == [3]
    assert counts["bytes"]["fills"] == 9 * 4
    assert sum(counts["launches"].values()) == 5
