"""One number sets the memory, and it halves where memory runs out."""

import contextlib
import re
import weakref

import pytest
import torch

from rerank.models import memory
from rerank.models.memory import (
    FIRST_TRIAL,
    DoesNotFitError,
    TokenBudget,
    is_out_of_memory,
    open_budget,
)
from rerank.utils.errors import UserError


@pytest.fixture
def no_garbage(monkeypatch):
    """Collecting what the whole suite has made would take longer than the test."""
    monkeypatch.setattr(memory.gc, "collect", lambda: None)


def fits(limit, tried):
    def work(tokens):
        tried.append(tokens)
        if tokens > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return tokens

    return work


def test_the_budget_halves_until_the_work_fits(capsys, no_garbage):
    budget, tried = TokenBudget(4096), []
    assert budget.run(fits(1000, tried), longest=100) == 512
    assert tried == [4096, 2048, 1024, 512]
    assert budget.tokens == 512
    assert "out of memory: 512 tokens at a time from here on" in capsys.readouterr().err
    assert budget.run(fits(1000, tried), longest=100) == 512


def test_one_passage_alone_is_the_least(no_garbage):
    budget, tried = TokenBudget(1000), []
    assert budget.run(fits(300, tried), longest=300) == 300
    with pytest.raises(UserError, match=r"out of memory with one passage of 300 tokens.*--encoder.max-doc-tokens"):
        budget.run(fits(200, tried), longest=300)


def test_the_cpu_runs_out_of_memory_too(no_garbage):
    """What torch says when the system gives no more."""

    def work(tokens):
        if tokens > 64:
            torch.empty(2**60, dtype=torch.uint8)
        return tokens

    assert TokenBudget(128).run(work, longest=10) == 64


def test_auto_starts_with_the_device_s_number_and_a_given_one_is_taken():
    assert open_budget("auto", torch.device("cpu")) == TokenBudget(FIRST_TRIAL["cpu"])
    assert open_budget(100, torch.device("cpu")) == TokenBudget(100)


SAID = {
    "CUDA out of memory. Tried to allocate 2.00 GiB": True,
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call": True,
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": True,
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED": True,
    "MPS backend out of memory (MPS allocated: 9.05 GB)": True,
    "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried": True,
    "CUDA error: an illegal memory access was encountered": False,
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`": False,
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.": False,
}


@pytest.mark.parametrize("message", SAID)
def test_whatever_part_of_cuda_has_no_memory_the_budget_halves(message, no_garbage):
    """torch.AcceleratorError, which CUDA's own errors are, is a RuntimeError."""

    def work(tokens):
        if tokens > 64:
            raise RuntimeError(message)
        return tokens

    assert not is_out_of_memory(ValueError(message))
    with contextlib.nullcontext() if SAID[message] else pytest.raises(RuntimeError, match=re.escape(message)):
        assert TokenBudget(128).run(work, longest=10) == 64


def test_what_does_not_shrink_is_tried_with_all_budgets_and_then_says_so(no_garbage):
    tried = []

    def work(tokens):
        tried.append(tokens)
        raise DoesNotFitError("the loss is too large")

    with pytest.raises(UserError, match=r"^the loss is too large$"):
        TokenBudget(100).run(work, longest=30)
    assert tried == [100, 50, 30]


def test_memory_is_given_back_before_the_work_is_tried_again(monkeypatch):
    order, kept = [], []

    def work(tokens):
        order.append(tokens)
        assert not any(tensor() is not None for tensor in kept)
        if tokens > 64:
            activations = torch.ones(tokens)
            cycle = [activations]
            cycle.append(cycle)
            kept.append(weakref.ref(activations))
            raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(memory, "clear_device_cache", lambda: order.append("given back"))
    TokenBudget(128).run(work, longest=10)
    assert order == [128, "given back", 64]
