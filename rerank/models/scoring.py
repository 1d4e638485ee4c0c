"""Scores (query, document) pairs with a cross-encoder, within a token budget."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from tokenizers import Tokenizer

from rerank.batches.batch import Packed, Pairs, make_microbatches, restore_order
from rerank.batches.passages import PassageBuilder
from rerank.batches.templates import open_template
from rerank.data.given import given_weights
from rerank.data.splitting import open_offset_tokenizer, passage_span
from rerank.data.tokens import Tokenisation, make_store
from rerank.data.types import Candidates, Run
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.export.folder import ExportedCrossEncoder
from rerank.models.gpu import Autocast, Precision, autocast_of, choose_precision
from rerank.models.memory import TokenBudget, open_budget
from rerank.utils.errors import UserError
from rerank.utils.parallel import prefetch
from rerank.utils.progress import log, progress

LARGEST_SCORE = torch.finfo(torch.float32).max

Scorer = CrossEncoder | ExportedCrossEncoder
"""A model that scores packed passages and pools their scores."""


class PairScores(NamedTuple):
    """The scores of pairs and their best passages.

    scores: (pairs,) float32; best: (pairs, 2), the number of the passage with the highest score, and of all passages.
    """

    scores: np.ndarray
    best: np.ndarray

    def take(self, places: Sequence[int]) -> "PairScores":
        """The scores of the pairs at these indices, in this order."""
        return PairScores(self.scores[places], self.best[places])


def score_candidates(
    model: Scorer,
    builder: PassageBuilder,
    candidates: Sequence[Candidates],
    accelerator: Accelerator,
    budget: TokenBudget,
    what: str | None = "scoring",
) -> Run:
    """The run of all candidates, returned in every process; each process scores a share of the chunks.

    `what` labels the progress; None shows none.
    """
    budget.agree(accelerator)
    chunks = chunk_by_length(pairs_of(candidates), builder, budget.tokens)
    own = chunks[accelerator.process_index :: accelerator.num_processes]
    found = score_chunks(model, builder, own, accelerator.device, accelerator.autocast, budget)
    shown = progress(found, len(own), what or "", show=what is not None and accelerator.is_main_process)
    scored = [pair for chunk, scores in shown for pair in zip(chunk, scores.scores.tolist(), strict=True)]
    if accelerator.num_processes > 1:
        scored = gather_object(scored)
    return make_run(candidates, dict(scored), model.first_stage_weight)


def pairs_of(candidates: Iterable[Candidates]) -> list[tuple[str, str]]:
    """(query_id, doc_id) of every candidate, in order."""
    return [(found.query_id, doc_id) for found in candidates for doc_id in found.doc_ids]


def chunk_by_length(pairs: Pairs, builder: PassageBuilder, tokens: int) -> list[list[tuple[str, str]]]:
    """Cuts pairs into chunks of at most `tokens` tokens, longest passages first; a longer pair is a chunk of its own.

    So memory peaks at the start, and an encoder that needs padding gets passages of similar length.
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
    model: Scorer,
    builder: PassageBuilder,
    chunks: Sequence[Pairs],
    device: torch.device,
    autocast: Autocast,
    budget: TokenBudget,
) -> Iterator[tuple[Pairs, PairScores]]:
    """Yields each chunk with its scores; the next chunk's passages are built while the model works.

    On a GPU, the next chunk is started before the scores of a chunk are waited for.
    """
    model.eval()
    before: tuple[Pairs, Callable[[], PairScores]] | None = None
    with autocast():  # around all chunks: weights are cast once, which inference_mode would not allow
        for chunk, inputs in prefetch(chunks, builder):
            with torch.no_grad():  # not around the yield: the caller may need gradients
                scores = start_scoring(model, inputs, device, autocast, budget)
            if before is not None:
                yield before[0], before[1]()
            before = chunk, scores
    if before is not None:
        yield before[0], before[1]()


def start_scoring(
    model: Scorer, inputs: Packed, device: torch.device, autocast: Autocast, budget: TokenBudget
) -> Callable[[], PairScores]:
    """Starts to score the documents of these passages; the returned function waits for the GPU and gives the scores."""
    passage_scores = start_passages(model, inputs, device, autocast, budget)

    def of_documents() -> PairScores:
        scores = passage_scores()
        pooled: torch.Tensor = model.pool(scores, inputs.documents)
        by_document = scores.split(inputs.documents.bincount().tolist())
        return PairScores(pooled.numpy(), np.array([(int(found.argmax()), len(found)) for found in by_document]))

    return of_documents


def start_passages(
    model: Scorer, inputs: Packed, device: torch.device, autocast: Autocast, budget: TokenBudget
) -> Callable[[], torch.Tensor]:
    """As `start_scoring`, for (passages,) float32 scores on the CPU; the micro-batches fit the budget."""
    lengths = inputs.lengths()

    def score_within(tokens: int) -> tuple[torch.Tensor, list[list[int]]]:
        groups = make_microbatches(lengths, tokens, model.is_padded)
        with autocast():
            scores = [model(inputs.take(group).to(device)) for group in groups]
        return torch.cat(scores).float(), groups

    scores, groups = budget.run(score_within, max(lengths))
    return lambda: restore_order(scores.cpu(), groups)


def make_run(candidates: Sequence[Candidates], scores: Mapping[tuple[str, str], float], weight: float) -> Run:
    """The run of scores plus `weight` × first-stage scores, in the candidates' order.

    Raises UserError for a score that is not finite.
    """
    run: Run = {c.query_id: {doc_id: scores[c.query_id, doc_id] for doc_id in c.doc_ids} for c in candidates}
    if weight:
        for c in candidates:
            for doc_id, first_score in zip(c.doc_ids, c.first_scores, strict=True):
                run[c.query_id][doc_id] += weight * first_score
    check_finite(run)
    return run


def check_finite(run: Run) -> None:
    """Raises UserError for a score that is NaN or infinite."""
    for query_id, scores in run.items():
        for doc_id, score in scores.items():
            if not abs(score) < float("inf"):
                raise UserError(
                    f"query {query_id}, document {doc_id}: the model's score is {score}, expected a finite number; "
                    "train it again, or take another model"
                )


def finite_scores(what: str, scores: Iterable[float]) -> tuple[float, ...]:
    """First-stage scores as numbers; raises TypeError for other values, and UserError for one that is not finite."""
    given = given_weights(scores, what)
    for place, score in enumerate(given):
        if not abs(score) <= LARGEST_SCORE:
            raise UserError(f"{what}[{place}]: got {score}, expected a finite score (float32)")
    return given


class TokenisedPairs(NamedTuple):
    """Distinct pairs of texts, numbered.

    builder: makes the passages of `pairs`; pairs: the distinct pairs, by ids of texts; places: the index in `pairs` of
    each given pair.
    """

    builder: PassageBuilder
    pairs: list[tuple[str, str]]
    places: list[int]


class TextScorer:
    """A trained cross-encoder on a device, for pairs of texts; documents are cut at the model's `max_doc_tokens`."""

    def __init__(
        self,
        model: Scorer,
        device: torch.device,
        precision: Precision = "auto",
        max_tokens_per_forward: int | Literal["auto"] = "auto",
    ) -> None:
        self.precision = choose_precision(precision, device, "precision")
        self._autocast = autocast_of(self.precision, device)
        for line in model.place(device, self._autocast, precision == "auto"):
            log.info(line)
        if isinstance(model, ExportedCrossEncoder):
            self.precision = model.precision
        elif model.in_float32:
            self.precision = "float32"
        self.model, self.device = model, device
        self._template = open_template(model.tokenizer, model.template)
        self.budget = open_budget(max_tokens_per_forward, device)

    def builder(
        self, queries: dict[str, str], doc_ids: Sequence[str], texts: Iterable[str], max_doc_tokens: int | None = None
    ) -> PassageBuilder:
        """The passages of queries and documents; `max_doc_tokens` may cut earlier than the model does.

        Raises as `PassageBuilder.build`.
        """
        model, template = self.model, self._template
        kept = model.max_doc_tokens if max_doc_tokens is None else min(max_doc_tokens, model.max_doc_tokens)
        store = make_store(doc_ids, texts, Tokenisation(model.tokenizer, kept, template.document_lead))
        return PassageBuilder.build(queries, store, model.tokenizer, template, model.max_length, model.cut)

    def tokenise_pairs(self, pairs: Sequence[tuple[str, str]], max_doc_tokens: int | None = None) -> TokenisedPairs:
        """Prepares (query, document) texts for `score_pairs`; equal pairs are scored once. See `builder`."""
        # The ids are numbers, as errors and logs show ids and must not show a user's text.
        query_ids = {text: str(number) for number, text in enumerate(dict.fromkeys(query for query, _ in pairs))}
        doc_ids = {text: str(number) for number, text in enumerate(dict.fromkeys(document for _, document in pairs))}
        asked = [(query_ids[query], doc_ids[document]) for query, document in pairs]
        places = {pair: place for place, pair in enumerate(dict.fromkeys(asked))}
        queries = {query_id: query for query, query_id in query_ids.items()}
        builder = self.builder(queries, list(doc_ids.values()), list(doc_ids), max_doc_tokens)
        return TokenisedPairs(builder, list(places), [places[pair] for pair in asked])

    def score_pairs(self, tokenised: TokenisedPairs, show: bool = True) -> PairScores:
        """The scores of the texts in the given order; raises UserError for a score that is not finite."""
        places = {pair: place for place, pair in enumerate(tokenised.pairs)}
        found = PairScores(np.empty(len(places), np.float32), np.empty((len(places), 2), np.int64))
        for chunk, scores in self.scores(tokenised.builder, tokenised.pairs, show):
            places_of_chunk = [places[pair] for pair in chunk]
            found.scores[places_of_chunk], found.best[places_of_chunk] = scores
        for (query_id, doc_id), score in zip(places, found.scores.tolist(), strict=True):
            check_finite({query_id: {doc_id: score}})
        return found.take(tokenised.places)

    def scores(self, builder: PassageBuilder, pairs: Pairs, show: bool = True) -> Iterator[tuple[Pairs, PairScores]]:
        """The scores of pairs by their ids, in chunks, longest first."""
        chunks = chunk_by_length(pairs, builder, self.budget.tokens)
        found = score_chunks(self.model, builder, chunks, self.device, self._autocast, self.budget)
        return progress(found, len(chunks), "scoring", show=show)

    @contextlib.contextmanager
    def scoring(self) -> Iterator[None]:
        """Within the block this thread may call `score_packed`; autocast casts the weights once."""
        self.model.eval()
        with self._autocast(), torch.no_grad():
            yield

    def score_packed(self, inputs: Packed) -> PairScores:
        """The scores of the documents of built passages; call it within `scoring`."""
        return start_scoring(self.model, inputs, self.device, self._autocast, self.budget)()

    def passage_span(self, text: str, number: int, count: int) -> tuple[int, int]:
        """Start and end, in characters, of passage `number` of the `count` passages of a text."""
        if self._offsets is None:  # a tokenizer in pure Python reports no offsets
            return 0, len(text)
        model, lead = self.model, self._template.document_lead
        return passage_span(text, (number, count), self._offsets, model.max_doc_tokens, lead, model.cut)

    @functools.cached_property
    def _offsets(self) -> Tokenizer | None:
        tokenizer = self.model.tokenizer
        return open_offset_tokenizer(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else None
