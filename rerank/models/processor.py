"""What the CPU at hand is, and how fast it multiplies matrices."""

import functools
import re
import time
from pathlib import Path

import torch

FASTER = 1.5
"""How many times as fast a CPU multiplies in bf16, if it has instructions for it (2 to 9 times)."""

PROCESSOR = Path("/proc/cpuinfo")
FACTS = r"^(?:vendor_id|cpu family|model|model name|flags|Features)\s*: .*"

ROWS, COLUMNS = 128, 768  # of the matrices that are multiplied: 0.15 Gflop


@functools.cache
def bf16_gain() -> float:
    """How many times as fast as in float32 a thread of the CPU multiplies matrices in bf16; it takes about 0.1 s.

    The times are those that the thread computes, so other work on the machine does not change which is faster.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            factors = [
                (torch.ones(ROWS, COLUMNS, dtype=kind), torch.ones(COLUMNS, COLUMNS, dtype=kind))
                for kind in (torch.float32, torch.bfloat16)
            ]
            seconds = [float("inf")] * 2
            for number in range(10):  # the first one chooses kernels
                for place, pair in enumerate(factors):
                    start = time.thread_time()
                    torch.matmul(*pair)
                    seconds[place] = min(time.thread_time() - start, seconds[place])
                if number and seconds[1] > 2 * seconds[0]:  # without instructions for it
                    break
    finally:
        torch.set_num_threads(threads)
    return seconds[0] / seconds[1]


@functools.cache
def prefers_onednn() -> bool:
    """Whether oneDNN multiplies float32 matrices faster than MKL, which torch calls: on AMD's processors."""
    return torch.backends.mkldnn.is_available() and "AuthenticAMD" in processor()


@functools.cache
def prefers_onednn_for_gradients() -> bool:
    """Whether oneDNN is also faster in gradients, whose products have transposes: on AMD's processors with AVX-512."""
    return prefers_onednn() and torch.backends.cpu.get_cpu_capability().startswith("AVX512")


@functools.cache
def processor() -> str:
    """The lines of FACTS about the processor: maker, model, instructions; "" where there is no /proc/cpuinfo."""
    lines = PROCESSOR.read_text(encoding="utf-8") if PROCESSOR.is_file() else ""
    return "\n".join(dict.fromkeys(re.findall(FACTS, lines, re.MULTILINE)))


@functools.cache
def prefers_onednn_in_bf16() -> bool:
    """Whether the CPU has instructions for products of bf16."""
    return torch.backends.mkldnn.is_available() and not {"avx512_bf16", "amx_bf16"}.isdisjoint(processor().split())
