"""Benchmark: milliseconds of the host's work for scoring: chunks are cut, and their passages are built."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from rerank.batches.pair_template import PairTemplate
from rerank.batches.passages import PassageBuilder
from rerank.data.tokens import TokenStore
from rerank.models.memory import FIRST_TRIAL
from rerank.models.pair_chunks import chunk_by_length
from scripts.benchmarks.lengths import QUERY_LENGTHS, document_lengths
from scripts.benchmarks.report import check, publish

QUERIES = 50
BERT = PairTemplate((2,), (3,), (3,), (0, 0, 0, 1, 1))
COLUMNS = {"what": "", "pairs": ",", "tokens": ",", "CPU ms": ".2f"}
NOTE = "CPU ms: the time that one thread computes, the median over rounds; other jobs of the machine do not count."


def bench_passages(rounds: int, documents: int, out: Path | None = None) -> str:
    """Returns the table for 50 queries with `documents` documents each; raises UserError as `check`."""
    check(rounds, out)
    builder, pairs = make_builder(QUERIES, documents)
    tokens = FIRST_TRIAL["cuda"]
    chunks = chunk_by_length(pairs, builder, tokens)
    works: dict[str, Callable[[], object]] = {
        "cut all pairs into chunks": lambda: chunk_by_length(pairs, builder, tokens),
        "build the first chunk, of the longest passages": lambda: builder(chunks[0]),
        "build the last chunk but one": lambda: builder(chunks[-2]),
    }
    seconds = {what: [_cpu_seconds(work) for _ in range(rounds)] for what, work in works.items()}
    parts = dict(zip(works, (pairs, chunks[0], chunks[-2]), strict=True))
    rows = [
        {
            "what": what,
            "pairs": len(part),
            "tokens": int(builder.sizes(part)[1].sum()),
            "CPU ms": 1000 * median(seconds[what]),
            "seconds": seconds[what],
        }
        for what, part in parts.items()
    ]
    title = f"Passages for scoring, chunks of {tokens:,} tokens"
    settings = {"rounds": rounds, "queries": QUERIES, "documents": documents}
    return publish(title, rows, COLUMNS, settings, torch.device("cpu"), [NOTE], out)


def _cpu_seconds(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


def make_builder(queries: int, documents: int, seed: int = 0) -> tuple[PassageBuilder, list[tuple[str, str]]]:
    """Random tokens of so many queries and documents of each, in BERT's template, and all pairs."""
    rng = np.random.default_rng(seed)
    lengths = document_lengths(queries * documents, rng)
    offsets = np.concatenate([[0], lengths.cumsum()])
    rows = {f"d{number}": number for number in range(len(lengths))}
    store = TokenStore(rng.integers(1000, 30_000, offsets[-1]).astype(np.int32), offsets, lengths, rows)
    texts = {f"q{number}": rng.integers(1000, 30_000, rng.choice(QUERY_LENGTHS)).tolist() for number in range(queries)}
    pairs = [(f"q{number // documents}", doc_id) for doc_id, number in rows.items()]
    return PassageBuilder(texts, store, BERT, 512), pairs
