"""Allocators: what the process sets, and that it leaves the user's settings."""

import ctypes
import os
import subprocess
import sys

import pytest

from rerank.utils.allocators import ALLOCATOR_SETTINGS, MALLOC_SETTINGS, prefer_expandable_segments


@pytest.mark.parametrize("chosen", [None, *ALLOCATOR_SETTINGS])
def test_segments_are_expandable_unless_the_user_has_chosen(monkeypatch, chosen):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ALLOCATOR_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    if chosen:
        monkeypatch.setenv(chosen, "max_split_size_mb:512")
    prefer_expandable_segments()
    expected = {chosen: "max_split_size_mb:512"} if chosen else {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert {name: os.environ[name] for name in ALLOCATOR_SETTINGS if name in os.environ} == expected


FAULTS = """
import resource, sys, torch
from rerank.models.gpu import open_device

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(12_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

before = faults()
open_device("cpu")
after = [faults() for _ in range(8)]  # in the first ones, small objects may be stored where a tensor was freed
print(before > 40_000, after[-1] < 1_000)
"""


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
@pytest.mark.parametrize("chosen", [{}, {"MALLOC_TRIM_THRESHOLD_": "131072"}])
def test_the_memory_of_large_tensors_is_kept_unless_the_user_has_settings(chosen):
    environment = {name: value for name, value in os.environ.items() if name not in MALLOC_SETTINGS} | chosen
    done = subprocess.run([sys.executable, "-c", FAULTS], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", str(not chosen)]
