"""How many tokens fit into one forward pass; halved automatically on out-of-memory errors."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size

from rerank.utils.errors import UserError
from rerank.utils.progress import log

Result = TypeVar("Result")

FIRST_TRIAL = {"cpu": 4096, "cuda": 65536}
"""Tokens that `auto` starts with: more makes neither device faster (docs/performance.md for the CPU)."""


@dataclass
class TokenBudget:
    """At most `tokens` per forward pass. They only ever shrink; the results do not depend on them.

    `tried` is True if the tokens are a setting, or if a forward pass with them has succeeded.
    """

    tokens: int
    tried: bool = True

    def run(self, work: Callable[[int], Result], longest: int) -> Result:
        """Returns `work(tokens)`, retried with half of the tokens each time it runs out of memory.

        `longest` is the length of the longest passage in tokens; a passage longer than the budget is processed alone.
        Raises UserError if even that does not fit.
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
            # After the except block, so that the traceback's frames no longer hold their tensors.
            gc.collect()
            clear_device_cache()
            self.tokens = max(self.tokens // 2, min(self.tokens - 1, longest))
            log.info(f"out of memory: {self.tokens} tokens at a time from here on")


def open_budget(tokens: int | Literal["auto"], device: torch.device) -> TokenBudget:
    """The budget for a value of --training.max-tokens-per-forward."""
    if tokens != "auto":
        return TokenBudget(tokens)
    return TokenBudget(FIRST_TRIAL.get(device.type, FIRST_TRIAL["cpu"]), tried=False)
