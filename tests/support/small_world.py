"""A handful of queries and documents of random words, tokenised, for tests that need a batch of text."""

import random
from pathlib import Path
from typing import Any

from torch import Tensor

from rerank.batches.batch import Packed
from rerank.batches.passages import PassageBuilder
from rerank.batches.templates import pair_template
from rerank.data.splitting import EVEN, Cut
from rerank.data.tokens import Tokenisation, open_token_store
from rerank.data.types import Candidates

WORDS = [
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "islet", "jetty", "knoll", "larch",
    "marsh", "north", "oasis", "plain", "quarry", "river", "stone", "tundra", "upland", "valley", "wharf", "yarrow",
]  # fmt: skip


def make_texts(lengths: dict[str, int], seed: int = 0) -> dict[str, str]:
    """doc_id -> a text of so many words."""
    rng = random.Random(seed)
    return {doc_id: " ".join(rng.choices(WORDS, k=length)) for doc_id, length in lengths.items()}


def make_inputs(
    folder: Path,
    tokenizer: Any,
    max_length: int,
    queries: dict[str, str],
    texts: dict[str, str],
    max_doc_tokens: int = 800,
    cut: Cut = EVEN,
) -> PassageBuilder:
    """The batch builder of these queries and documents."""
    tokenisation = Tokenisation(tokenizer, max_doc_tokens)
    store = open_token_store(folder, list(texts), lambda ids: [texts[i] for i in ids], tokenisation, "test")
    return PassageBuilder.build(queries, store, tokenizer, pair_template(tokenizer), max_length, cut)


def scores_of(model: Any, inputs: Packed) -> Tensor:
    """(documents,) scores in one forward pass."""
    return model.pool(model(inputs), inputs.documents)


def make_lists(
    queries: int = 6, documents: int = 8, longest: int = 60, seed: int = 0
) -> tuple[dict[str, str], dict[str, str], list[Candidates]]:
    """Queries, texts and labelled candidates: the first third of each query's documents is relevant."""
    rng = random.Random(seed)
    lengths = {f"d{q}-{i}": rng.randint(1, longest) for q in range(queries) for i in range(documents)}
    texts = make_texts(lengths, seed)
    found = []
    for q in range(queries):
        doc_ids = tuple(f"d{q}-{i}" for i in range(documents))
        relevant = set(rng.sample(doc_ids, max(1, documents // 3)))
        found.append(
            Candidates(
                f"q{q}", doc_ids, tuple(int(d in relevant) + int(d in relevant and rng.random() < 0.3) for d in doc_ids)
            )
        )
    return {f"q{q}": " ".join(rng.choices(WORDS, k=2)) for q in range(queries)}, texts, found
