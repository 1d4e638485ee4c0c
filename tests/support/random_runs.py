"""Runs of 20 documents a query, of which the first three are relevant: as good as asked, and otherwise noise."""

import random

from rerank.data.types import Qrels, Run


def relevant_first_three(queries: int) -> Qrels:
    """Judgments of the queries q0, q1, …"""
    return {f"q{query}": {f"d{place:02}": int(place < 3) for place in range(20)} for query in range(queries)}


def drawn(qrels: Qrels, seed: int, skill: float) -> Run:
    """Normal scores, to which a relevant document adds `skill`."""
    draw = random.Random(seed)
    return {q: {d: draw.gauss(0, 1) + skill * grade for d, grade in judged.items()} for q, judged in qrels.items()}
