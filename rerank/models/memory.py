"""How many tokens go through the encoder at a time: one number sets the memory, and halves where memory runs out."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size

from rerank.errors import UserError
from rerank.utils.progress import log

Result = TypeVar("Result")

FIRST_TRIAL = {"cpu": 4096, "cuda": 65536}
"""Tokens that are tried first: more makes neither device faster (docs/performance.md for the CPU)."""


@dataclass
class TokenBudget:
    """`tokens` per forward pass. It only ever shrinks; what is computed does not depend on it.

    `tried` says that they were given, or went through the encoder before.
    """

    tokens: int
    tried: bool = True

    def run(self, work: Callable[[int], Result], longest: int) -> Result:
        """`work(tokens)`, again with half of the tokens as often as it runs out of memory.

        `longest` is the longest passage, in tokens; it goes through alone where the budget is smaller.
        Raises UserError where it does not fit alone.
        """
        while True:
            try:
                result = work(self.tokens)
                self.tried = True
                return result
            except RuntimeError as error:
                if not should_reduce_batch_size(error):
                    raise
                if self.tokens <= longest:
                    raise UserError(
                        f"out of memory with one passage of {longest} tokens at a time; take a smaller encoder, fewer "
                        "--encoder.max-doc-tokens, or --training.gradient-checkpointing"
                    ) from None
            # Behind the except block, so that the frames of the error no longer hold their tensors.
            gc.collect()
            clear_device_cache()
            self.tokens = max(self.tokens // 2, min(self.tokens - 1, longest))
            log.info(f"out of memory: {self.tokens} tokens at a time from here on")


def open_budget(tokens: int | Literal["auto"], device: torch.device) -> TokenBudget:
    """The budget of the setting --training.max-tokens-per-forward."""
    if tokens != "auto":
        return TokenBudget(tokens)
    return TokenBudget(FIRST_TRIAL.get(device.type, FIRST_TRIAL["cpu"]), tried=False)
