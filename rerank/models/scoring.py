"""Scores (query, document) pairs with a cross-encoder, within a token budget."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from rerank.batches.batch import Packed, Pairs, make_microbatches, restore_order
from rerank.batches.passages import PassageBuilder
from rerank.data.types import Candidates, Run
from rerank.models.gpu import Autocast
from rerank.models.memory import TokenBudget
from rerank.utils.errors import UserError
from rerank.utils.parallel import prefetch
from rerank.utils.progress import progress


class PairScore(NamedTuple):
    """The score of a pair, the number of the passage with the highest score, and the number of passages."""

    query_id: str
    doc_id: str
    score: float
    best_passage: int
    passages: int


def score_candidates(
    model: Any,
    builder: PassageBuilder,
    candidates: Sequence[Candidates],
    accelerator: Accelerator,
    budget: TokenBudget,
    what: str = "scoring",
) -> Run:
    """The run of all candidates, in every process; each scores its own chunks, cut by the smallest of all budgets.

    Raises UserError for a score that is not finite.
    """
    budget.agree(accelerator)
    chunks = chunk_by_length(pairs_of(candidates), builder, budget.tokens)
    own, show = chunks[accelerator.process_index :: accelerator.num_processes], accelerator.is_main_process
    scored: Iterable[PairScore] = score_chunks(
        model, builder, own, accelerator.device, accelerator.autocast, budget, what, show
    )
    if accelerator.num_processes > 1:
        scored = gather_object(list(scored))
    return make_run(candidates, scored, model.first_stage_weight)


def pairs_of(candidates: Iterable[Candidates]) -> list[tuple[str, str]]:
    """(query_id, doc_id) of every candidate, in order."""
    return [(found.query_id, doc_id) for found in candidates for doc_id in found.doc_ids]


def chunk_by_length(pairs: Pairs, builder: PassageBuilder, tokens: int) -> list[list[tuple[str, str]]]:
    """Chunks of at most `tokens` tokens, if a pair has not more; those with the longest passages first.

    Memory then peaks at the start, and passages of similar length are padded together where the encoder needs padding.
    """
    longest, totals = builder.sizes(pairs)
    sizes = totals.tolist()
    chunks: list[list[tuple[str, str]]] = []
    filled = 0
    for number in np.lexsort((-totals, -longest)).tolist():
        filled += sizes[number]
        if not chunks or filled > tokens:
            chunks.append([])
            filled = sizes[number]
        chunks[-1].append(pairs[number])
    return chunks


def score_chunks(
    model: Any,
    builder: PassageBuilder,
    chunks: Sequence[Pairs],
    device: torch.device,
    autocast: Autocast,
    budget: TokenBudget,
    what: str = "scoring",
    show: bool = True,
) -> Iterator[PairScore]:
    """Yields the scores of all pairs, chunk by chunk; the next chunk's passages are built while the model works."""
    model.eval()
    with autocast():  # around all chunks: weights are cast once, which inference_mode would not allow
        for chunk, inputs in progress(prefetch(chunks, builder), len(chunks), what, show=show):
            with torch.no_grad():  # not around the yield, where the caller may do anything
                scores_of_passages = passage_scores(model, inputs, device, autocast, budget)
                scores = model.pool(scores_of_passages, inputs.documents).tolist()
                best = best_passages(scores_of_passages, inputs.documents)
            for pair, score, passage in zip(chunk, scores, best, strict=True):
                yield PairScore(*pair, score, *passage)


def passage_scores(
    model: Any, inputs: Packed, device: torch.device, autocast: Autocast, budget: TokenBudget
) -> torch.Tensor:
    """(passages,) float32 scores on the CPU, computed in micro-batches that fit the budget."""
    lengths = inputs.lengths()

    def score_within(tokens: int) -> torch.Tensor:
        groups = make_microbatches(lengths, tokens, model.is_padded)
        with autocast():
            scores = [model(inputs.take(group).to(device)) for group in groups]
        return restore_order(torch.cat(scores).float().cpu(), groups)

    return budget.run(score_within, max(lengths))


def make_run(candidates: Sequence[Candidates], scored: Iterable[PairScore], first_stage_weight: float = 0.0) -> Run:
    """The run of these scores, plus weighted first-stage scores, in the candidates' order; raises UserError for NaN."""
    run: Run = {c.query_id: dict.fromkeys(c.doc_ids, float("nan")) for c in candidates}
    for pair in scored:
        run[pair.query_id][pair.doc_id] = pair.score
    if first_stage_weight:
        for c in candidates:
            scores = run[c.query_id]
            for doc_id, first_score in zip(c.doc_ids, c.first_scores, strict=True):
                scores[doc_id] += first_stage_weight * first_score
    for query_id, scores in run.items():
        for doc_id, score in scores.items():
            check_finite(query_id, doc_id, score)
    return run


def check_finite(query_id: str, doc_id: str, score: float) -> None:
    """Raises UserError for a score that is NaN or infinite."""
    if not abs(score) < float("inf"):
        raise UserError(f"query {query_id}, document {doc_id}: the model's score is {score}; is it broken?")


def best_passages(scores: torch.Tensor, documents: torch.Tensor) -> list[tuple[int, int]]:
    """Of each document the number of its passage with the highest score, and how many it has, from (passages,) scores.

    >>> best_passages(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1]))
    [(1, 2), (0, 1)]
    """
    return [(int(part.argmax()), len(part)) for part in scores.split(documents.bincount().tolist())]
