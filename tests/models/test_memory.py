"""One number sets the memory, and it halves where memory runs out."""

import pytest
import torch

from rerank.models.memory import FIRST_TRIAL, TokenBudget, open_budget
from rerank.utils.errors import UserError


def fits(limit, tried):
    def work(tokens):
        tried.append(tokens)
        if tokens > limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return tokens

    return work


def test_the_budget_halves_until_the_work_fits(capsys):
    budget, tried = TokenBudget(4096, tried=False), []
    assert budget.run(fits(1000, tried), longest=100) == 512
    assert tried == [4096, 2048, 1024, 512]
    assert budget.tokens == 512
    assert budget.tried
    assert "out of memory: 512 tokens at a time from here on" in capsys.readouterr().err
    assert budget.run(fits(1000, tried), longest=100) == 512


def test_one_passage_alone_is_the_least():
    budget, tried = TokenBudget(1000), []
    assert budget.run(fits(300, tried), longest=300) == 300
    with pytest.raises(UserError, match=r"out of memory with one passage of 300 tokens.*--encoder.max-doc-tokens"):
        budget.run(fits(200, tried), longest=300)


def test_the_cpu_runs_out_of_memory_too():
    """What torch says when the system gives no more."""

    def work(tokens):
        if tokens > 64:
            torch.empty(2**60, dtype=torch.uint8)
        return tokens

    assert TokenBudget(128).run(work, longest=10) == 64


def test_other_errors_are_not_memory():
    with pytest.raises(RuntimeError, match="mat1"):
        TokenBudget(128).run(lambda tokens: torch.zeros(2, 3) @ torch.zeros(2, 3), longest=10)


def test_auto_starts_with_the_device_s_number_and_a_given_one_is_taken():
    assert open_budget("auto", torch.device("cpu")) == TokenBudget(FIRST_TRIAL["cpu"], tried=False)
    assert open_budget(100, torch.device("cpu")) == TokenBudget(100, tried=True)
