"""TextScorer: scores (query, document) texts with a model on a device; nothing is written to disk."""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch

from rerank.batches.batch import Packed, Pairs
from rerank.batches.passages import PassageBuilder
from rerank.batches.templates import open_template
from rerank.data.splitting import OffsetTokenizer, open_offset_tokenizer, passage_span
from rerank.data.tokens import make_store
from rerank.data.types import Candidates, Run
from rerank.models.checkpoints import TrainedCrossEncoder
from rerank.models.export.folder import ExportedCrossEncoder
from rerank.models.gpu import AUTOCAST, Precision, choose_precision
from rerank.models.memory import open_budget
from rerank.models.scoring import (
    PairScore,
    best_passages,
    check_finite,
    chunk_by_length,
    make_run,
    pairs_of,
    passage_scores,
    score_chunks,
)
from rerank.utils.progress import log


class TokenisedPairs(NamedTuple):
    """What makes the passages of `pairs`, the ids of distinct texts, and the place there of each given pair."""

    builder: PassageBuilder
    pairs: list[tuple[str, str]]
    places: list[int]


class PairScores(NamedTuple):
    """(pairs,) float32 scores; (pairs, 2) the number of the passage with the highest score, and of passages."""

    scores: np.ndarray
    best: np.ndarray

    def take(self, places: Sequence[int]) -> "PairScores":
        """The scores of the pairs at these places, in their order."""
        return PairScores(self.scores[places], self.best[places])


class TextScorer:
    """A trained cross-encoder on a device; a longer document than `max_doc_tokens` is cut."""

    def __init__(
        self,
        trained: TrainedCrossEncoder,
        device: torch.device,
        precision: Precision = "auto",
        max_tokens_per_forward: int | Literal["auto"] = "auto",
    ) -> None:
        if precision not in get_args(Precision):
            raise ValueError(f"precision: got {precision}, expected auto, float32, bf16 or fp16")
        self.precision = choose_precision(precision, device, "precision")
        self._autocast = (
            functools.partial(torch.autocast, device.type, AUTOCAST[self.precision])
            if self.precision in AUTOCAST
            else contextlib.nullcontext
        )
        for line in trained.model.place(device, self._autocast, precision == "auto"):
            log.info(line)
        self.model, self.tokenizer, self.max_doc_tokens = trained.model, trained.tokenizer, trained.max_doc_tokens
        if isinstance(self.model, ExportedCrossEncoder):
            self.precision = self.model.precision
        elif self.model.in_float32:
            self.precision = "float32"
        self.device = device
        self.max_length = trained.max_length
        self._template = open_template(trained.tokenizer, trained.model.template)
        self._budget = open_budget(max_tokens_per_forward, device)

    @property
    def max_tokens_per_forward(self) -> int:
        """The tokens of one forward pass, as they are now."""
        return self._budget.tokens

    def builder(
        self, queries: dict[str, str], doc_ids: Sequence[str], texts: Iterable[str], max_doc_tokens: int | None = None
    ) -> PassageBuilder:
        """Makes the passages of these queries and documents; `max_doc_tokens` may cut earlier than the model does.

        Raises UserError if the template leaves no token for query and document.
        """
        kept = self.max_doc_tokens if max_doc_tokens is None else min(max_doc_tokens, self.max_doc_tokens)
        store = make_store(doc_ids, texts, self.tokenizer, kept, self._template.document_lead)
        return PassageBuilder.build(queries, store, self.tokenizer, self._template, self.max_length)

    def tokenise_pairs(self, pairs: Sequence[tuple[str, str]], max_doc_tokens: int | None = None) -> TokenisedPairs:
        """The passages of (query, document) texts, to be built and scored later; equal pairs are one. See `builder`."""
        # Errors and logs show ids, so these are numbers and no text of a user.
        queries = {text: str(number) for number, text in enumerate(dict.fromkeys(query for query, _ in pairs))}
        texts = {text: str(number) for number, text in enumerate(dict.fromkeys(document for _, document in pairs))}
        asked = [(queries[query], texts[document]) for query, document in pairs]
        places = {pair: place for place, pair in enumerate(dict.fromkeys(asked))}
        texts_by_id = {number: query for query, number in queries.items()}
        builder = self.builder(texts_by_id, list(texts.values()), texts, max_doc_tokens)
        return TokenisedPairs(builder, list(places), [places[pair] for pair in asked])

    def score_pairs(self, tokenised: TokenisedPairs, show: bool = True) -> PairScores:
        """The scores of the texts in the order that they were given in; raises UserError for one that is not finite."""
        found = {(pair.query_id, pair.doc_id): pair for pair in self._scored(tokenised.builder, tokenised.pairs, show)}
        scored = [found[pair] for pair in tokenised.pairs]
        for pair in scored:
            check_finite(pair.query_id, pair.doc_id, pair.score)
        scores = np.array([pair.score for pair in scored], dtype=np.float32)
        best = np.array([(pair.best_passage, pair.passages) for pair in scored], dtype=np.int64)
        return PairScores(scores, best.reshape(-1, 2)).take(tokenised.places)

    def score_candidates(self, builder: PassageBuilder, candidates: Sequence[Candidates]) -> Run:
        """The run of the candidates, with their first-stage scores added if the model was trained to add them."""
        return make_run(candidates, self._scored(builder, pairs_of(candidates)), self.model.first_stage_weight)

    def _scored(self, builder: PassageBuilder, pairs: Pairs, show: bool = True) -> Iterator[PairScore]:
        chunks = chunk_by_length(pairs, builder, self._budget.tokens)
        return score_chunks(self.model, builder, chunks, self.device, self._autocast, self._budget, show=show)

    @contextlib.contextmanager
    def scoring(self) -> Iterator[None]:
        """Within the block this thread may call `score_packed`; the weights are cast once."""
        self.model.eval()
        with self._autocast(), torch.no_grad():
            yield

    def score_packed(self, inputs: Packed) -> PairScores:
        """The scores of the documents of passages that a builder made; to be called within `scoring`."""
        scores = passage_scores(self.model, inputs, self.device, self._autocast, self._budget)
        pooled: torch.Tensor = self.model.pool(scores, inputs.documents)
        return PairScores(pooled.numpy(), np.array(best_passages(scores, inputs.documents)).reshape(-1, 2))

    def passage_span(self, text: str, number: int, of: int) -> tuple[int, int]:
        """Where passage `number` of the `of` passages of a text begins and ends, in characters."""
        if self._offsets is None:  # a tokenizer that is written in Python does not report places
            return 0, len(text)
        kept, lead = self.max_doc_tokens, self._template.document_lead
        return passage_span(text, number, of, self._offsets, kept, lead)

    @functools.cached_property
    def _offsets(self) -> OffsetTokenizer | None:
        return open_offset_tokenizer(self.tokenizer.backend_tokenizer.to_str()) if self.tokenizer.is_fast else None
