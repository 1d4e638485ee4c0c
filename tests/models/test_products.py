"""Products of float32 matrices by every version of torch: the tests ask torch in the words that it knows."""

import pytest
import torch

from rerank.models.products import full_float32, is_tf32, read_products, set_products, set_tf32
from tests.support.fake_cards import rounds_to_tf32


@pytest.fixture(autouse=True)
def kept():
    before = read_products()
    yield
    set_products(before)


@pytest.mark.parametrize("on", [True, False])
def test_tf32_is_what_was_set(on):
    set_tf32(on)
    assert rounds_to_tf32() == is_tf32() == on


def test_full_float32_takes_back_what_was_chosen():
    set_tf32(True)
    with full_float32():
        assert not rounds_to_tf32()
    assert rounds_to_tf32()
    first, second = full_float32(), full_float32()  # of two threads: the one that began first ends first
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not rounds_to_tf32()
    second.__exit__(None, None, None)
    assert rounds_to_tf32()


def test_full_float32_covers_products_on_cpus():
    torch.set_float32_matmul_precision("medium")  # bf16 on CPUs that have it
    with full_float32():
        assert read_products()[-1] in ("ieee", "highest")
