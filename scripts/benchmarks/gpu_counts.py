"""Benchmark: kernel launches, bytes, copies and synchronisations of a GPU, counted without one.

A process whose torch believes in a CUDA device (scripts.benchmarks.fake_cuda) runs the workloads of
`scripts.benchmarks.gpu_workloads` with fake tensors.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rerank.evaluation.tables.table import aligned
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write
from scripts.benchmarks.fake_cuda import library
from scripts.benchmarks.report import Count, Out

TITLES = {"step": "a training step", "list150": "a step with a list of 150 documents", "score": "scoring a chunk"}
WAITS = {
    "blocking_copies": "copies to the device that block",
    "other_copies": "copies that do not block",
    "synchronisations": "synchronisations",
}
ROOT = Path(__file__).parents[2]


def gpu_counts(
    *workloads: Literal["step", "list150", "score"],
    encoder: Literal["bert-base", "minilm"] = "bert-base",
    layers: Count = 12,
    precision: Literal["bf16", "fp16", "no"] = "bf16",
    out: Out = None,
) -> None:
    """Kernel launches, bytes, copies and synchronisations of a GPU, counted without one (Linux, a C++ compiler).

    Parameters
    ----------
    workloads
        step (8 lists of 4 documents), list150 (a list of 150) and score (a chunk of 65,536 tokens); by default all.
    layers
        Layers of the encoder.
    precision
        The type of matrix products.
    """
    counts = count(workloads or tuple(TITLES), encoder, layers, precision)
    if out is not None:
        with atomic_write(out) as tmp:
            tmp.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
    title = f"{encoder} with {layers} layers, {precision}: what a GPU would do"
    print("\n\n".join([title, *(_tables(what, of) for what, of in counts.items())]))


def count(workloads: Sequence[str], encoder: str, layers: int, precision: str) -> dict[str, dict[str, Any]]:
    """The fields of `Counts` of each workload, and its documents, passages and tokens.

    Raises UserError if there can be no fake device here.
    """
    if why_not := library.why_not():
        raise UserError(f"gpu-counts needs a fake device: {why_not}")
    words = [sys.executable, "-m", "scripts.benchmarks.gpu_workloads", encoder, str(layers), precision, *workloads]
    process = subprocess.run(
        words, cwd=ROOT, env=library.environment(), stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    if process.returncode:
        raise UserError(f"{' '.join(words)}: ended with exit code {process.returncode}; its messages are above")
    counts: dict[str, dict[str, Any]] = json.loads(process.stdout)
    return counts


def _tables(what: str, counts: Mapping[str, Any]) -> str:
    facts = f"{counts['documents']} documents, {counts['passages']} passages, {counts['tokens']:,} tokens"
    parts = [f"{TITLES[what]}: {facts}", _table("kernel", counts["launches"], counts["bytes"])]
    for name, title in WAITS.items():
        if counts[name]:
            rows = [[line, str(times)] for line, times in sorted(counts[name].items())]
            parts.append(aligned([[title, "times"], *rows, ["together", str(sum(counts[name].values()))]]))
    return "\n\n".join(parts)


def _table(title: str, launches: Mapping[str, int], sizes: Mapping[str, int]) -> str:
    rows = [
        [name, f"{launches[name]:,}", f"{size / 1e9:,.2f}"]
        for name, size in sorted(sizes.items(), key=lambda item: -item[1])
    ]
    total = ["together", f"{sum(launches.values()):,}", f"{sum(sizes.values()) / 1e9:,.2f}"]
    return aligned([[title, "launches", "GB"], *rows, total])
