"""Random judgments and runs."""

import random

from rerank.data.types import Qrels, Run


def judgments(rng: random.Random, highest: int) -> tuple[Qrels, Run]:
    """1 to 4 queries, up to 12 judged documents with grades below 0 too; runs with ties, of float32 too, and gaps."""
    qrels: Qrels = {}
    run: Run = {}
    for query_id in [f"q{i}" for i in range(rng.randint(1, 4))]:
        top = -1 if rng.random() < 0.2 else highest
        judged = rng.sample(range(15), rng.randint(1, 12))
        qrels[query_id] = {f"d{doc}": rng.choice([-3, -1, 0, rng.randint(-3, top)]) for doc in judged}
        scores = [1.0, 1.0 + 1e-9, -2.5, rng.random(), rng.uniform(-1e6, 1e6), 0.1 + 0.2, 0.3]
        if not run or rng.random() < 0.8:
            run[query_id] = {f"d{doc}": rng.choice(scores) for doc in rng.sample(range(15), rng.randint(1, 15))}
    return qrels, run
