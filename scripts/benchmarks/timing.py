"""Interleaved timing, so that background load affects all contestants equally; and reference matrix products."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from rerank.utils.progress import log
from scripts.benchmarks.flops import token_layers

Work = Callable[[], object]
TOKENS = 4096
"""Rows of the products in the shapes of an encoder's layers."""

REPEATS = 16
"""Square products per measurement: about a second on two cores."""


def interleaved(
    contestants: dict[str, Work],
    rounds: int,
    device: torch.device,
    least: float = 0.0,
    cpu_seconds: bool = False,
) -> dict[str, list[float]]:
    """Returns name -> seconds per call, one value per round; the contestants take turns in each round.

    A call is repeated until `least` seconds have passed, and its mean time counts. With `cpu_seconds` the
    processor's time of all threads is measured, so that other jobs on the machine count little.
    """
    clock = time.process_time if cpu_seconds else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(1, rounds + 1):
        for name, work in contestants.items():
            seconds[name].append(_seconds(work, device, least, clock))
        so_far = ", ".join(f"{name} {values[-1]:.3g} s" for name, values in seconds.items())
        log.info(f"round {number}/{rounds}: {so_far}")
    return seconds


def _seconds(work: Work, device: torch.device, least: float, clock: Callable[[], float]) -> float:
    synchronise(device)
    start, calls = clock(), 0
    while True:
        work()
        synchronise(device)
        calls, passed = calls + 1, clock() - start
        if passed >= least:
            return passed / calls


def synchronise(device: torch.device) -> None:
    """Waits until a GPU has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def ratio(slow: list[float], fast: list[float]) -> float:
    """How many times faster `fast` is: the median over rounds of the ratio within a round."""
    return median(s / f for s, f in zip(slow, fast, strict=True))


def square_product(device: torch.device, dtype: torch.dtype) -> tuple[str, Work, float]:
    """A name, a large square matrix product and its number of operations: the machine's peak rate."""
    side = 8192 if device.type == "cuda" else 2048
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))

    def work() -> None:
        for _ in range(REPEATS):
            torch.nn.functional.linear(left, right)

    return f"matrix product in {str(dtype)[6:]}, {side} × {side}", work, REPEATS * 2.0 * side**3


def layer_products(encoder: Any, device: torch.device, dtype: torch.dtype) -> tuple[str, Work, float]:
    """A name, the products of 4,096 tokens with the weights of `token_layers`, and their number of operations.

    There are no biases and no attention: the peak rate of the encoder's linear layers.
    """
    weights = [layer.weight.detach().to(device, dtype) for layer in token_layers(encoder)]
    tokens = {width: torch.randn(TOKENS, width, device=device, dtype=dtype) for width in {w.shape[1] for w in weights}}

    def work() -> None:
        for weight in weights:
            torch.nn.functional.linear(tokens[weight.shape[1]], weight)

    return f"its layers' products, {TOKENS} tokens", work, 2.0 * TOKENS * sum(w.numel() for w in weights)
