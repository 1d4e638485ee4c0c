"""The token budget of a forward pass, halved on out-of-memory errors."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils.memory import clear_device_cache

from rerank.utils.errors import UserError
from rerank.utils.progress import log

Result = TypeVar("Result")

FIRST_TRIAL = {"cpu": 4096, "cuda": 65536}
"""The initial budget of `auto`, in tokens; more is not faster (docs/performance.md for the CPU)."""

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""The words of torch, the CUDA runtime and its libraries when a device has no memory left."""


class DoesNotFitError(RuntimeError):
    """Memory ran out in work that no smaller budget makes smaller; the message is for the user."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device, or the system, has no memory left."""
    if isinstance(error, torch.OutOfMemoryError | DoesNotFitError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY)


def out_of_memory(error: BaseException, what: str) -> UserError:
    """The user's error for work that cannot be cut further: the message of a DoesNotFitError, or a line with `what`."""
    return UserError(str(error) if isinstance(error, DoesNotFitError) else f"out of memory with {what}")


@dataclass
class TokenBudget:
    """The most `tokens` of a forward pass. The budget only shrinks; the results do not depend on it."""

    tokens: int

    def run(self, work: Callable[[int], Result], longest: int) -> Result:
        """Calls `work(tokens)`, with half the tokens after each out-of-memory error.

        Raises UserError if memory runs out for one passage of `longest` tokens.
        """
        while True:
            try:
                return work(self.tokens)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if self.tokens <= longest:
                    remedy = (
                        "take a smaller encoder, fewer --encoder.max-doc-tokens, or --training.gradient-checkpointing"
                    )
                    raise out_of_memory(error, f"one passage of {longest} tokens at a time; {remedy}") from None
            # After the except block, so that the traceback's frames no longer hold their tensors.
            gc.collect()
            clear_device_cache()
            self.tokens = max(self.tokens // 2, min(self.tokens - 1, longest))
            log.info(f"out of memory: {self.tokens} tokens at a time from here on")

    def agree(self, accelerator: Accelerator) -> None:
        """Takes the smallest budget of all processes, so that all make the same chunks; every process must call it."""
        if accelerator.num_processes == 1:
            return
        tokens = torch.tensor(self.tokens, device=accelerator.device)
        torch.distributed.all_reduce(tokens, torch.distributed.ReduceOp.MIN)
        if (smallest := int(tokens)) < self.tokens:
            self.tokens = smallest
            log.info(f"another process ran out of memory: {smallest} tokens at a time from here on")


def open_budget(tokens: int | Literal["auto"], device: torch.device) -> TokenBudget:
    """The budget for a value of --training.max-tokens-per-forward."""
    return TokenBudget(FIRST_TRIAL.get(device.type, FIRST_TRIAL["cpu"]) if tokens == "auto" else tokens)
