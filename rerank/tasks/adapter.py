"""The task of a query adapter: the vectors of the candidates' passages, made once by a bi-encoder."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from rerank.batches.batch import Batch, make_batch
from rerank.batches.sampling import epoch_lists
from rerank.config import ListsSettings, TrainingSettings
from rerank.data.embeddings import EmbeddingStore
from rerank.data.types import Candidates, Fold, Judgments, Qrels, Run
from rerank.models.bi_encoder import BiEncoder
from rerank.models.query_adapter import (
    QueryAdapter,
    VectorPairs,
    compared,
    load_adapter,
    save_adapter,
    standardising_scale,
)
from rerank.models.scoring import PairScore, make_run
from rerank.tasks.fold_candidates import judgments_of, measured_candidates, trainable_candidates
from rerank.training.gradients import Loss
from rerank.training.task import Part
from rerank.training.validation import mean_loss

SCALED_BY = 1000
"""Training queries, at most, whose candidates give the scale of the scores."""


@dataclass(frozen=True)
class CandidateVectors:
    """The vectors of queries, query_id to (dimensions,), and of the documents, by a bi-encoder."""

    encoder: BiEncoder
    documents: EmbeddingStore
    queries: Mapping[str, np.ndarray]

    def of(self, lists: Sequence[Candidates]) -> VectorPairs:
        """The vectors of the lists' queries, and of the passages of their documents."""
        doc_ids = [doc_id for found in lists for doc_id in found.doc_ids]
        of_list = np.repeat(np.arange(len(lists)), [len(found.doc_ids) for found in lists])
        known = self.documents.numbers(doc_ids)
        places = np.array([place for place, doc_id in enumerate(doc_ids) if doc_id in known], dtype=np.int64)
        numbers = np.array([known[doc_ids[place]] for place in places], dtype=np.int64)
        begins, ends = self.documents.offsets[numbers], self.documents.offsets[numbers + 1]
        rows = [row for begin, end in zip(begins, ends, strict=True) for row in range(begin, end)]
        documents = np.repeat(places, ends - begins)
        passages = np.take(self.documents.vectors, np.array(rows, dtype=np.int64), axis=0)
        queries = np.stack([self.queries[found.query_id] for found in lists])
        return VectorPairs(
            compared(torch.from_numpy(queries), self.encoder),
            compared(torch.from_numpy(passages), self.encoder),
            torch.from_numpy(of_list[documents]),
            torch.from_numpy(documents),
            len(doc_ids),
        )


def score_adapted(model: QueryAdapter, vectors: CandidateVectors, lists: Sequence[Candidates], device: Any) -> Run:
    """The run of these candidates, with their first-stage scores times the model's weight added."""
    model.eval()
    scored = []
    for found in lists:
        with torch.inference_mode():
            scores = model(vectors.of([found]).to(device)).tolist()
        pairs = zip(found.doc_ids, scores, strict=True)
        scored += [PairScore(found.query_id, doc_id, score, 0, 1) for doc_id, score in pairs]
    return make_run(lists, scored, model.first_stage_weight)


def untrained(vectors: CandidateVectors, weight: float) -> QueryAdapter:
    """An adapter that leaves the vectors of queries as they are; `weight` is that of the first stage's score."""
    model = QueryAdapter(vectors.documents.vectors.shape[1])
    model.first_stage_weight = weight
    return model


class AdapterTask:
    """A fold of text and a query adapter: see `rerank.training.task.Task`.

    `weight` is that of the first stage's score. Raises UserError for a fold without queries to train or to measure.
    """

    memory = None  # a step is a product of small matrices

    def __init__(
        self,
        fold: Fold,
        vectors: CandidateVectors,
        candidates: Mapping[str, Candidates],
        qrels: Judgments,
        lists: ListsSettings,
        training: TrainingSettings,
        weight: float,
        accelerator: Accelerator,
    ) -> None:
        self.fold, self.vectors, self._qrels, self.device = fold, vectors, qrels, accelerator.device
        self.lists_settings, self.training, self.weight = lists, training, weight
        self.lists: dict[Part, Sequence[Candidates]] = {
            "valid": measured_candidates("valid", fold, candidates, qrels),
            "train": trainable_candidates(fold, candidates, show=False),
        }
        self.model = untrained(vectors, weight).to(self.device)
        some = itertools.islice(self.lists["train"], SCALED_BY)
        self.model.scale = standardising_scale(self.model, (vectors.of([found]).to(self.device) for found in some))

    def parameter_groups(self) -> list[dict[str, Any]]:
        """One group: the matrix, with `head_lr`."""
        return [{"params": list(self.model.parameters()), "lr": self.training.head_lr}]

    def training_lists(self, epoch: int) -> Sequence[Candidates]:
        """Lists drawn from the candidates of the training queries."""
        lists, training = self.lists_settings, self.training
        return epoch_lists(
            self.lists["train"], epoch, training.lists_per_epoch, lists.relevant, lists.non_relevant, training.seed
        )

    def batch(self, lists: Sequence[Candidates]) -> Batch[VectorPairs]:
        """The vectors of the lists' queries, and of the passages of their documents."""
        return make_batch(lists, lambda pairs: self.vectors.of(lists))

    def score(self, part: Part) -> Run:
        """Scores all candidates of a part."""
        return score_adapted(self.model, self.vectors, list(self.lists[part]), self.device)

    def mean_loss(self, run: Run, part: Part, loss: Loss) -> float:
        """The mean over the queries of a part of the loss of all their candidates."""
        return mean_loss(run, self.lists[part], loss)

    def qrels(self, part: Part) -> Qrels:
        """The judgments of a part's queries."""
        return judgments_of(part, self.fold, self._qrels)

    def save(self, folder: Path) -> None:
        """Writes the matrix and the scale."""
        save_adapter(self.model, folder)

    def load(self, checkpoint: Path) -> None:
        """Replaces the adapter by that of a checkpoint."""
        self.model = load_adapter(checkpoint).to(self.device)
        self.model.first_stage_weight = self.weight
