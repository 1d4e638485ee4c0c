"""Tensors that go to another device in one buffer."""

import pytest
import torch

from rerank.batches.transfer import to_device, to_device_together

META = torch.device("meta")


def test_they_keep_their_values_shapes_and_types():
    tensors = [
        torch.arange(5),
        torch.tensor([[1.5, 2.5]]),
        torch.zeros(0, dtype=torch.int64),
        torch.tensor([7, 8]).int(),
    ]
    for given, moved in zip(tensors, to_device_together(tensors, torch.device("cpu")), strict=True):
        assert torch.equal(given, moved)
        assert given.dtype == moved.dtype
    assert torch.equal(to_device(tensors[1], torch.device("cpu")), tensors[1])


@pytest.mark.parametrize("sizes", [[3, 5, 1], [0, 2]])
def test_they_begin_where_kernels_read_large_words(sizes):
    parts = to_device_together([torch.zeros(size, dtype=torch.int32) for size in sizes], META)
    assert [part.storage_offset() * 4 % 16 for part in parts] == [0] * len(sizes)
    assert [part.device for part in parts] == [META] * len(sizes)
