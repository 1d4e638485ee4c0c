"""The stage `trained-encoder`: a bi-encoder that the trainer of sentence-transformers fine-tunes on the judgments."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypedDict

import numpy as np

from rerank.data.candidates import standardised
from rerank.data.embeddings import COSINE, DOCUMENTS_AT_ONCE, units, vectors_by_document
from rerank.data.folds import fold_seed
from rerank.data.types import Fold, Run
from rerank.evaluation.fusion import place_above
from rerank.pipelines.stages.base import BI_ENCODER, Learns, expect_one_below, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.reranking import lists_to_rank
from rerank.pipelines.stages.world import World
from rerank.utils.inside import copy_files
from rerank.utils.integrity import files_below
from rerank.utils.json_files import read_json
from rerank.utils.parameters import PathText, Whole, at_least
from rerank.utils.progress import log

if TYPE_CHECKING:
    from rerank.data.embeddings import EmbeddingStore

MODEL = "encoder"
"""The folder of the fine-tuned bi-encoder."""

FILE = "trained-encoder.json"
"""The file that says which documents have vectors."""


class Saved(TypedDict):
    """The content of FILE."""

    embeds: Literal["collection", "candidates"]


@stage
@dataclass(frozen=True)
class TrainedEncoderStage(Composable):
    """Re-ranks the best documents of the stage below with a bi-encoder that is fine-tuned on the judgments.

    The trainer of sentence-transformers minimises MultipleNegativesRankingLoss. A training list has a relevant document
    of a training query, and hard negatives: other documents that the stage below ranks high. A long document is
    represented by the passage most similar to the query. The score of the stage below, standardised by query, is added
    to the similarity. Documents below `depth` keep their order.

    Only candidates are re-ranked, so an encoder that is fitted without a part embeds no other documents; the encoder
    that answers embeds the collection.

    >>> TrainedEncoderStage("fused", "sentence-transformers/all-MiniLM-L6-v2").learns
    'expensively'
    """

    kind: ClassVar[str] = "trained-encoder"
    of: str | tuple[str, ...] = ""
    """The stage whose documents are ranked, and whose best documents are negatives."""
    encoder: PathText = BI_ENCODER
    """The bi-encoder of sentence-transformers that is fine-tuned: a hub name or a folder."""
    depth: Annotated[Whole, at_least(1)] = 100
    """Documents of a query that are ranked, and from which negatives are drawn."""
    below_weight: Annotated[float, at_least(0)] = 2.0
    """Weight of the standardised score of the stage below."""
    negatives: Annotated[Whole, at_least(1)] = 1
    """Hard negatives of a training list."""
    epochs: Annotated[Whole, at_least(1)] = 1
    """Passes over the training queries' lists."""
    lists_per_epoch: Annotated[Whole, at_least(1)] = 256
    """Training lists of an epoch, from all training queries in turn."""
    lists_per_step: Annotated[Whole, at_least(1)] = 8
    """Training lists of an optimizer step; the documents of one are negatives of the others."""
    lr: Annotated[float, at_least(0)] = 5e-5
    """Learning rate, which rises in a tenth of the steps and then falls to 0."""
    learns: ClassVar[Learns] = "expensively"
    ignores_validation: ClassVar[bool] = True

    check = expect_one_below

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "TrainedEncoderRanker":
        """Fine-tunes on the training queries, and those of the final fold, which measure nothing, on all."""
        from rerank.pipelines.lessons import as_texts, draw_lessons, passage_by, trainable_lists  # load torch
        from rerank.training.contrastive import Plan, fine_tune

        seed, texts, queries = fold_seed(world.config.training.seed, fold.name), world.texts, world.collection.queries
        encoder, documents = world.encoder(self.encoder), world.vectors(self.encoder)
        taught = (*fold.train, *fold.valid) if fold.is_final else fold.train
        judged = {query_id: world.collection.qrels.get(query_id, {}) for query_id in taught}
        trainable = trainable_lists(texts, judged, documents, below[0], self.depth)
        if not trainable:
            log.info(f"{self.kind}: no training query has a relevant document and a negative: it learns nothing")
        counts = self.epochs, self.lists_per_epoch, self.lists_per_step, self.negatives
        lessons = draw_lessons(trainable, *counts, seed)
        asked = {found.query_id: queries[found.query_id] for found in trainable}
        best_passage = passage_by(encoder, documents, world.query_vectors(self.encoder, asked))
        plan = Plan(
            as_texts(lessons.lists, texts, asked, best_passage),
            lessons.batches,
            self.lr,
            seed,
            str(encoder.model.device),
            world.config.training.precision,
        )
        fine_tune(world.place_of(self.encoder), plan, folder, folder / MODEL)
        return self._ranker(world, folder, "collection" if fold.is_final else "candidates")

    def seconds_to_fit(self, world: World, fold: Fold, below: Run) -> float:
        """The seconds of all steps, and of embedding the documents of the test queries; 0 if nothing can be learned."""
        from rerank.training.contrastive import Plan, measure  # loads torch

        texts = []
        for query_id, scores in below.items():
            grades = world.collection.qrels.get(query_id, {})
            best_first = sorted(scores, key=lambda doc_id: -grades.get(doc_id, 0))
            shown = world.texts.get(best_first[: 1 + self.negatives])
            texts.append((world.collection.queries[query_id], *(document.text for document in shown)))
        if not texts:
            return 0.0
        size = max(map(len, texts))
        texts = [of_list for of_list in texts if len(of_list) == size]
        device, precision = str(world.encoder(self.encoder).model.device), world.config.training.precision
        plan = Plan(texts, [], self.lr, 0, device, precision)
        lists = self.epochs * self.lists_per_epoch
        embedded = min(1.0, len(fold.test) * self.depth / world.texts.count())
        return lists * measure(world.place_of(self.encoder), plan) + embedded * world.seconds_to_embed(self.encoder)

    def open(self, world: World, folder: Path) -> "TrainedEncoderRanker":
        saved = read_json(folder / FILE, Saved, "fit the pipeline again")
        return self._ranker(world, folder, saved["embeds"])

    def _ranker(
        self, world: World, folder: Path, embeds: Literal["collection", "candidates"]
    ) -> "TrainedEncoderRanker":
        name = str(folder / MODEL)
        documents = world.vectors(name) if embeds == "collection" else None
        world.encoder(name)
        return TrainedEncoderRanker(self, world, name, documents)


@dataclass(frozen=True)
class TrainedEncoderRanker:
    """Ranks with the fine-tuned bi-encoder in the folder `name`.

    `documents` has the vectors of the collection. Without them, the vectors of candidates are made when a query is
    ranked, and kept in memory.
    """

    settings: TrainedEncoderStage
    world: World
    name: str
    documents: "EmbeddingStore | None" = field(repr=False)
    _kept: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        settings, (first,) = self.settings, below
        lists = lists_to_rank(queries, first, settings.depth)
        asked = self.world.query_vectors(self.name, {query_id: queries[query_id] for query_id in lists})
        vectors = self._vectors(dict.fromkeys(doc_id for found in lists.values() for doc_id in found.doc_ids))
        scores: Run = {}
        for query_id, found in lists.items():
            query = self._compared(asked[query_id])
            similar = standardised([float((vectors[d] @ query).max()) if d in vectors else 0.0 for d in found.doc_ids])
            pairs = zip(similar, found.first_scores, strict=True)
            values = (similarity + settings.below_weight * score for similarity, score in pairs)
            scores[query_id] = dict(zip(found.doc_ids, values, strict=True))
        return place_above(scores, first)

    def _vectors(self, doc_ids: Iterable[str]) -> dict[str, np.ndarray]:
        """doc_id -> (passages, dimensions) vectors, scaled to length 1 for the cosine."""
        if self.documents is not None:
            rows = self.documents.numbers(doc_ids)
            return {doc_id: self._compared(self.documents.vectors_of(rows[doc_id])) for doc_id in rows}
        left = iter([doc_id for doc_id in doc_ids if doc_id not in self._kept])
        while chunk := list(itertools.islice(left, DOCUMENTS_AT_ONCE)):
            documents = [document for document in self.world.texts.get(chunk) if document.text.strip()]
            if documents:
                self._kept.update(vectors_by_document(documents, self.world.encoder(self.name).encode_documents))
        return {doc_id: self._compared(self._kept[doc_id]) for doc_id in doc_ids if doc_id in self._kept}

    def _compared(self, vectors: np.ndarray) -> np.ndarray:
        return units(vectors) if self.world.encoder(self.name).compares == COSINE else vectors

    def save(self, folder: Path) -> None:
        copy_files(Path(self.name), folder / MODEL, files_below(Path(self.name)))
        saved = Saved(embeds="candidates" if self.documents is None else "collection")
        (folder / FILE).write_text(json.dumps(saved), encoding="utf-8")
