"""Model + candidates -> Run."""

from collections.abc import Sequence
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from rerank.batches.batch import Packed, Pairs
from rerank.batches.microbatches import make_microbatches, restore_order
from rerank.batches.passages import PassageBuilder
from rerank.batches.prefetch import prefetch
from rerank.errors import UserError
from rerank.models.memory import TokenBudget
from rerank.types import Candidates, Run
from rerank.utils.progress import progress

Passages = dict[str, dict[str, tuple[int, int]]]
"""query_id -> doc_id -> the number of the passage that scored highest, from 0, and how many there are."""


def score_candidates(
    model: Any,
    inputs_of: PassageBuilder,
    candidates: Sequence[Candidates],
    accelerator: Accelerator,
    budget: TokenBudget,
    what: str = "scoring",
    passages: Passages | None = None,
) -> Run:
    """Scores every candidate once, the processes sharing the work, and gives every process the whole run.

    Documents are taken longest first across queries, so that memory peaks at the start and little is padded where
    anything is. `passages`, where it is given, is filled for the documents that have several. Raises UserError for a
    score that is not finite.
    """
    pairs = [(c.query_id, doc_id) for c in candidates for doc_id in c.doc_ids]
    chunks = by_length(pairs, inputs_of, budget.tokens)
    mine = chunks[accelerator.process_index :: accelerator.num_processes]
    model.eval()
    found: list[tuple[str, str, float, int, int]] = []
    with torch.inference_mode():
        for chunk, inputs in progress(prefetch(mine, inputs_of), len(mine), what, show=accelerator.is_main_process):
            of_passages = passage_scores(model, inputs, accelerator, budget)
            scores = model.pool(of_passages, inputs.documents).tolist()
            best = best_passages(of_passages, inputs.documents)
            found += [(*pair, value, *of) for pair, value, of in zip(chunk, scores, best, strict=True)]
    if accelerator.num_processes > 1:
        found = gather_object(found)
    run: Run = {c.query_id: dict.fromkeys(c.doc_ids, float("nan")) for c in candidates}
    for query_id, doc_id, value, number, of in found:
        run[query_id][doc_id] = value
        if passages is not None and of > 1:
            passages.setdefault(query_id, {})[doc_id] = number, of
    for query_id, scores_of in run.items():
        for doc_id, value in scores_of.items():
            if not abs(value) < float("inf"):
                raise UserError(f"query {query_id}, document {doc_id}: the model's score is {value}; is it broken?")
    return run


def passage_scores(model: Any, inputs: Packed, accelerator: Accelerator, budget: TokenBudget) -> torch.Tensor:
    """(passages,) float32 scores on the CPU, as many at a time as the budget allows."""
    lengths = inputs.lengths()

    def scores_of(tokens: int) -> torch.Tensor:
        groups = make_microbatches(lengths, tokens, model.is_padded)
        with accelerator.autocast():
            scores = [model(inputs.take(group).to(accelerator.device)) for group in groups]
        return restore_order(torch.cat(scores), groups)

    return budget.run(scores_of, max(lengths)).float().cpu()


def best_passages(scores: torch.Tensor, documents: torch.Tensor) -> list[tuple[int, int]]:
    """The number of the highest of each document's passages, and how many it has, from (passages,) scores.

    >>> best_passages(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]))
    [(1, 2), (0, 1)]
    """
    return [(int(of.argmax()), len(of)) for of in scores.split(documents.bincount().tolist())]


def by_length(pairs: Pairs, inputs_of: PassageBuilder, tokens: int) -> list[Pairs]:
    """The pairs in chunks of at most so many tokens, longest passages first; a longer document is alone."""
    sizes = {}
    for pair in pairs:
        lengths = inputs_of.lengths(*pair)
        sizes[pair] = int(lengths.max()), int(lengths.sum())
    chunks: list[list[tuple[str, str]]] = []
    filled = 0
    for pair in sorted(pairs, key=lambda pair: sizes[pair], reverse=True):
        filled += sizes[pair][1]
        if not chunks or filled > tokens:
            chunks.append([])
            filled = sizes[pair][1]
        chunks[-1].append(pair)
    return list(chunks)
