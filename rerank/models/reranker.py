"""Reranker: scores texts for a query and re-ranks runs, with a trained model and nothing on disk."""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from rerank.batches.batch import Packed
from rerank.batches.passages import PassageBuilder
from rerank.batches.text_template import open_template
from rerank.config import EncoderSettings
from rerank.data.candidates import select_candidates
from rerank.data.collections import Collection
from rerank.data.passage_texts import OffsetTokenizer, open_offset_tokenizer, passage_span
from rerank.data.tokens import make_store
from rerank.data.types import Candidates, Run
from rerank.models.cast_weights import cast_weights
from rerank.models.checkpoints import TrainedCrossEncoder, open_trained_cross_encoder
from rerank.models.gpu import AUTOCAST, Autocast, Precision, choose_precision, unusable_gpu
from rerank.models.memory import open_budget
from rerank.models.pair_chunks import chunk_by_length, pairs_of
from rerank.models.pyterrier_transformer import make_transformer
from rerank.models.rankings import (
    BestPassage,
    PairScores,
    Ranked,
    TokenisedPairs,
    check_texts,
    numbered,
    with_first_scores,
)
from rerank.models.scoring import Passages, best_passages, kept_passages, make_run, passage_scores, score_chunks
from rerank.utils.errors import UserError
from rerank.utils.progress import log


class Reranker:
    """A trained cross-encoder that scores documents for a query; `Reranker.load` opens one.

    Documents may be of any length: they are split into passages as in training, cut at the checkpoint's
    `max_doc_tokens`, and the scores of the passages are pooled as the checkpoint was trained. Memory is bounded by the
    tokens of one forward pass, which are halved when a device runs out of it.

    A model that was trained with `--encoder.first-stage-weight` adds the first stage's scores of the documents of a
    query, standardised, to its own. Methods that take `first_scores` add them where they are given; the others give the
    model's own part.
    """

    def __init__(
        self,
        trained: TrainedCrossEncoder,
        device: torch.device,
        precision: Precision = "auto",
        max_tokens_per_forward: int | Literal["auto"] = "auto",
    ) -> None:
        self.precision = _chosen(precision, device)
        self._autocast = _autocast(self.precision, device)
        for line in trained.model.place(device, self._autocast):
            log.info(line)
        self.model = trained.model
        self.tokenizer = trained.tokenizer
        self.max_doc_tokens = trained.max_doc_tokens
        self.device = device
        self._max_length = trained.max_length
        self._template = open_template(trained.tokenizer, trained.model.template)
        self._budget = open_budget(max_tokens_per_forward, device)
        if self.model.first_stage_weight:
            log.info(
                f"this model adds the first stage's scores, with weight {self.model.first_stage_weight:g}; scores of "
                "texts without them are its own part alone"
            )

    @classmethod
    def load(
        cls,
        name_or_folder: str | Path,
        *,
        device: str | torch.device | None = None,
        precision: Precision = "auto",
        max_tokens_per_forward: int | Literal["auto"] = "auto",
        pooling: str = EncoderSettings.pooling,
        max_doc_tokens: int = EncoderSettings.max_doc_tokens,
        template: str = EncoderSettings.template,
    ) -> "Reranker":
        """Opens runs/…/checkpoint, or a cross-encoder by its folder or by its name on the Hugging Face hub.

        Args:
            name_or_folder: what `rerank score` takes.
            device: such as "cpu", "cuda:1" or "mps"; by default a CUDA GPU if there is one, and otherwise the CPU.
            precision: auto is bf16 on CUDA GPUs that have it, fp16 on Volta and Turing, and otherwise float32.
            max_tokens_per_forward: bounds the memory; auto starts high and halves when memory runs out.
            pooling: how passage scores become document scores; a checkpoint of ours has its own.
            max_doc_tokens: tokens kept of a document; a checkpoint of ours has its own.
            template: the text that a pair is put into, with {query} and {document}, for a model that was trained with
                a prompt; a checkpoint of ours has its own.

        Raises UserError for a model that cannot be loaded or was never trained to rank, and for a template that is not
        the checkpoint's own or misses a placeholder, if torch cannot run on the NVIDIA GPU of this machine, and for a
        precision that the device lacks.
        """
        target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if (device is None or target.type == "cuda") and (reason := unusable_gpu(target.index or 0)):
            raise UserError(
                f"device {device}: PyTorch cannot run on the NVIDIA GPU of this machine: {reason.rstrip('.')}; "
                'device="cpu" takes the CPU'
            )
        trained = open_trained_cross_encoder(str(name_or_folder), pooling, max_doc_tokens, template)
        return cls(trained, target, precision, max_tokens_per_forward)

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        first_scores: Sequence[float] | None = None,
    ) -> list[Ranked]:
        """The documents, best first; those of equal score stay in their order.

        Args:
            query: a text; it is cut at half of the encoder's input length.
            documents: texts; they may be empty and may repeat.
            top_k: how many documents to return; by default all.
            first_scores: the first stage's scores of the documents, for a model that was trained to add them.
        """
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k: got {top_k}, expected 1 or more")
        scores = self.score(query, documents, first_scores)
        best_first = np.argsort(-scores, kind="stable")[:top_k].tolist()
        return [Ranked(index, float(scores[index]), documents[index]) for index in best_first]

    def rank_passages(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        first_scores: Sequence[float] | None = None,
        show: bool = False,
    ) -> list[BestPassage]:
        """The order of `rank`, and of each document the passage that the model scored highest.

        With a tokenizer that is written in Python, which does not tell places, the passage is the whole text. With
        `show`, a long call shows its progress. Raises UserError for a score that is not finite.
        """
        check_texts(query, documents)
        tokenised = self.tokenise_pairs([(query, document) for document in documents])
        return self.best_passages(documents, self._score_pairs(tokenised, show), top_k, first_scores)

    def best_passages(
        self,
        documents: Sequence[str],
        scored: PairScores,
        top_k: int | None = None,
        first_scores: Sequence[float] | None = None,
    ) -> list[BestPassage]:
        """What `rank_passages` gives, from the model's scores of the documents in their order."""
        scores = with_first_scores(scored.scores, first_scores, self.model.first_stage_weight)
        best_first = np.argsort(-scores, kind="stable")[:top_k].tolist()
        return [
            BestPassage(index, float(scores[index]), *self._span(documents[index], *scored.best[index].tolist()))
            for index in best_first
        ]

    def score(self, query: str, documents: Sequence[str], first_scores: Sequence[float] | None = None) -> np.ndarray:
        """(documents,) float32 scores, in the order of the documents; see `rank` for the arguments.

        Raises UserError for a score that is not finite.
        """
        check_texts(query, documents)
        scores = self.score_pairs([(query, document) for document in documents], show=False)
        return with_first_scores(scores, first_scores, self.model.first_stage_weight)

    def score_pairs(self, pairs: Sequence[tuple[str, str]], show: bool = True) -> np.ndarray:
        """(pairs,) float32 scores of (query, document) texts, in their order; equal pairs are scored once.

        With `show`, a long call shows its progress. Raises UserError for a score that is not finite.
        """
        return self._score_pairs(self.tokenise_pairs(pairs), show).scores

    def tokenise_pairs(self, pairs: Sequence[tuple[str, str]], max_doc_tokens: int | None = None) -> TokenisedPairs:
        """The passages of (query, document) texts, to be built and scored later; equal pairs are one.

        `max_doc_tokens`, if given, cuts documents earlier than the model does. Raises UserError if the template leaves
        no token for query and document.
        """
        # Errors and logs show ids, so these are numbers and no text of a user.
        queries, texts = numbered(query for query, _ in pairs), numbered(document for _, document in pairs)
        asked = [(queries[query], texts[document]) for query, document in pairs]
        places = {pair: place for place, pair in enumerate(dict.fromkeys(asked))}
        builder = self._builder(
            {number: query for query, number in queries.items()}, list(texts.values()), texts, max_doc_tokens
        )
        return TokenisedPairs(builder, list(places), [places[pair] for pair in asked])

    @contextlib.contextmanager
    def scoring(self) -> Iterator[None]:
        """Within the block this thread may call `score_packed`; the weights are those that scoring takes."""
        self.model.eval()
        with cast_weights(self.model, self.device, self._autocast), torch.inference_mode():
            yield

    def score_packed(self, inputs: Packed) -> PairScores:
        """The scores of the documents of passages that a builder made; memory is bounded as always.

        The score of a document does not depend on the others, but for rounding. To be called within `scoring`.
        """
        scores = passage_scores(self.model, inputs, self.device, self._autocast, self._budget)
        pooled: torch.Tensor = self.model.pool(scores, inputs.documents)
        return PairScores(pooled.numpy(), np.array(best_passages(scores, inputs.documents)).reshape(-1, 2))

    @property
    def max_tokens_per_forward(self) -> int:
        """The tokens of one forward pass, as they are now."""
        return self._budget.tokens

    def rerank(self, run: Run, collection: Collection, depth: int = 100) -> Run:
        """Scores the best `depth` documents of each query of a run; the collection gives the texts.

        Queries that are not in the collection are left out and logged. Raises UserError if none is, if a document is
        missing from the collection, and for a score that is not finite.
        """
        known = [query_id for query_id in run if query_id in collection.queries]
        if unknown := [query_id for query_id in run if query_id not in collection.queries]:
            if not known:
                raise UserError(
                    f"{collection.source}: has none of the {len(run)} queries of the run, such as {unknown[0]}; "
                    "expected a run for this collection"
                )
            log.info(f"{len(unknown)} queries of the run are not in {collection.source}, such as {unknown[0]}: skipped")
        weight = self.model.first_stage_weight
        candidates = [c for c in select_candidates(run, {}, depth, known, weight > 0).values() if c.doc_ids]
        doc_ids = sorted({doc_id for c in candidates for doc_id in c.doc_ids})
        texts = (document.text for document in collection.get(doc_ids))
        queries = {query_id: collection.queries[query_id] for query_id in known}
        return self._score(self._builder(queries, doc_ids, texts), candidates, weight=weight)

    def transformer(self) -> Any:
        """A PyTerrier transformer: `bm25 >> pt.text.get_text(dataset, "text") >> model.transformer()`.

        It reads the columns qid, query, docno and text, and replaces score and rank; the best document of a query has
        rank 0. It needs no Java. Raises ImportError if PyTerrier is not installed.
        """
        return make_transformer(self)

    def _builder(
        self, queries: dict[str, str], doc_ids: Sequence[str], texts: Iterable[str], max_doc_tokens: int | None = None
    ) -> PassageBuilder:
        kept = self.max_doc_tokens if max_doc_tokens is None else min(max_doc_tokens, self.max_doc_tokens)
        store = make_store(doc_ids, texts, self.tokenizer, kept, self._template.document_lead)
        return PassageBuilder.build(
            queries, store, self.tokenizer, self._template, self._max_length, self.model.splitting
        )

    def _score_pairs(self, tokenised: TokenisedPairs, show: bool) -> PairScores:
        """The scores of the texts that were tokenised, in the order in which they were given."""
        asked: dict[str, list[str]] = {}
        for query_id, doc_id in tokenised.pairs:
            asked.setdefault(query_id, []).append(doc_id)
        candidates = [Candidates(query_id, tuple(found), (0,) * len(found)) for query_id, found in asked.items()]
        passages: Passages = {}
        run = self._score(tokenised.builder, candidates, show, passages)
        scores = [run[query_id][doc_id] for query_id, doc_id in tokenised.pairs]
        best = [passages.get(query_id, {}).get(doc_id, (0, 1)) for query_id, doc_id in tokenised.pairs]
        scored = PairScores(np.array(scores, dtype=np.float32), np.array(best, dtype=np.int64).reshape(-1, 2))
        return scored.take(tokenised.places)

    def _score(
        self,
        builder: PassageBuilder,
        candidates: list[Candidates],
        show: bool = True,
        passages: Passages | None = None,
        weight: float = 0.0,
    ) -> Run:
        chunks = chunk_by_length(pairs_of(candidates), builder, self._budget.tokens)
        scored = score_chunks(self.model, builder, chunks, self.device, self._autocast, self._budget, show=show)
        if passages is not None:
            scored = kept_passages(scored, passages)
        return make_run(candidates, scored, weight)

    def _span(self, text: str, number: int, of: int) -> tuple[int, int]:
        """Where passage `number` of the `of` of this text begins and ends; the whole text without a fast tokenizer."""
        if self._offsets is None:
            return 0, len(text)
        kept, lead = self.max_doc_tokens, self._template.document_lead
        return passage_span(text, number, of, self._offsets, kept, self.model.splitting, lead)

    @functools.cached_property
    def _offsets(self) -> OffsetTokenizer | None:
        return open_offset_tokenizer(self.tokenizer.backend_tokenizer.to_str()) if self.tokenizer.is_fast else None


def _chosen(precision: Precision, device: torch.device) -> str:
    if precision not in get_args(Precision):
        raise ValueError(f"precision: got {precision}, expected auto, float32, bf16 or fp16")
    return choose_precision(precision, device, "precision")


def _autocast(chosen: str, device: torch.device) -> Autocast:
    return partial(torch.autocast, device.type, AUTOCAST[chosen]) if chosen in AUTOCAST else contextlib.nullcontext
