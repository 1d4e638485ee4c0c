"""A fold of text and a query adapter: the vectors of the candidates' passages, made once by a bi-encoder."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from accelerate import Accelerator

from rerank.batches.batch import Batch, make_batch
from rerank.batches.sampling import epoch_lists
from rerank.config import Config
from rerank.data.candidates import distinct_doc_ids
from rerank.data.collections import Collection
from rerank.data.types import Candidates, Fold, Qrels, Run
from rerank.models.query_adapter import (
    QueryAdapter,
    VectorPairs,
    compared,
    load_adapter,
    open_adaptable,
    save_adapted,
    standardising_scale,
)
from rerank.models.scoring import PairScore, Passages, make_run
from rerank.runs.layout import CollectionFolder
from rerank.tasks.dense_first_stage import open_vectors
from rerank.tasks.fold_candidates import judgments_of, measured_candidates, trainable_candidates
from rerank.training.gradients import Loss
from rerank.training.task import Part
from rerank.training.validation import mean_loss
from rerank.utils.errors import UserError
from rerank.utils.progress import progress

SCALED_BY = 1000
"""Training queries, at most, whose candidates give the scale of the scores."""


class AdapterTask:
    """A fold of text and a query adapter: see `rerank.training.task.Task`.

    The vectors of all documents are made first, unless the collection's folder has them. Raises UserError for several
    processes, for an encoder that is no bi-encoder, and as `rerank.tasks.text.TextTask` for a fold without
    queries to train or to measure.
    """

    judged_parts: ClassVar[tuple[Part, ...]] = ("train", "valid", "test")
    memory: ClassVar[None] = None  # a step is a product of small matrices

    def __init__(
        self,
        config: Config,
        fold: Fold,
        collection: Collection,
        folder: CollectionFolder,
        candidates: Mapping[str, Candidates],
        first_stage: Mapping[str, Any],
        accelerator: Accelerator,
    ) -> None:
        if accelerator.num_processes > 1:
            raise UserError(
                f"{accelerator.num_processes} processes: a query adapter trains in seconds, by one process; start the "
                "command without a launcher"
            )
        self.config, self.fold, self.accelerator, self.first_stage = config, fold, accelerator, first_stage
        self.collection, self.best_passages = collection, Passages()
        self.lists: dict[Part, Sequence[Candidates]] = {
            "valid": measured_candidates("valid", fold, candidates, collection.qrels),
            "test": measured_candidates("test", fold, candidates, collection.qrels),
            "train": trainable_candidates(fold, candidates, accelerator),
        }
        self.encoder = open_adaptable(config.encoder.name, str(accelerator.device))
        self.documents = open_vectors(self.encoder, collection, folder)
        self.numbers = self.documents.numbers(set(distinct_doc_ids(candidates)))
        queries = {found.query_id: collection.queries[found.query_id] for part in self.lists.values() for found in part}
        self.queries = self.encoder.encode_queries(queries)
        self.model = QueryAdapter(self.documents.vectors.shape[1]).to(accelerator.device)
        self.model.first_stage_weight = config.encoder.first_stage_weight
        some = itertools.islice(self.lists["train"], SCALED_BY)
        vectors = (self._vectors([found]).to(accelerator.device) for found in some)
        self.scale = self.model.scale = standardising_scale(self.model, vectors)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """One group: the matrix, with `head_lr`."""
        return [{"params": list(self.model.parameters()), "lr": self.config.training.head_lr}]

    def training_lists(self, epoch: int) -> Sequence[Candidates]:
        """Lists drawn from the candidates of the training queries (`--lists`)."""
        lists, training = self.config.lists, self.config.training
        return epoch_lists(
            self.lists["train"], epoch, training.lists_per_epoch, lists.relevant, lists.non_relevant, training.seed
        )

    def batch(self, lists: Sequence[Candidates]) -> Batch[VectorPairs]:
        """The vectors of the lists' queries, and of the passages of their documents."""
        return make_batch(lists, lambda pairs: self._vectors(lists))

    def _vectors(self, lists: Sequence[Candidates]) -> VectorPairs:
        doc_ids = [doc_id for found in lists for doc_id in found.doc_ids]
        of_list = np.repeat(np.arange(len(lists)), [len(found.doc_ids) for found in lists])
        places = np.array([place for place, doc_id in enumerate(doc_ids) if doc_id in self.numbers], dtype=np.int64)
        numbers = np.array([self.numbers[doc_ids[place]] for place in places], dtype=np.int64)
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

    def score(self, part: Part) -> Run:
        """Scores all candidates of a part."""
        lists, what = list(self.lists[part]), "testing" if part == "test" else "validating"
        self.model.eval()
        scored = []
        for found in progress(lists, len(lists), what):
            with torch.inference_mode():
                scores = self.model(self._vectors([found]).to(self.accelerator.device)).tolist()
            pairs = zip(found.doc_ids, scores, strict=True)
            scored += [PairScore(found.query_id, doc_id, score, 0, 1) for doc_id, score in pairs]
        return make_run(lists, scored, self.model.first_stage_weight)

    def mean_loss(self, run: Run, part: Part, loss: Loss) -> float:
        """The mean over the queries of a part of the loss of all their candidates."""
        return mean_loss(run, self.lists[part], loss)

    def qrels(self, part: Part) -> Qrels:
        """The judgments of a part's queries."""
        return judgments_of(part, self.fold, self.collection.qrels)

    def save(self, folder: Path) -> None:
        """Writes the bi-encoder with the adapter, as sentence-transformers opens it."""
        save_adapted(self.encoder, self.model, folder)

    def load(self, checkpoint: Path) -> None:
        """Replaces the adapter by that of a checkpoint."""
        self.model = load_adapter(checkpoint).to(self.accelerator.device)
        self.model.first_stage_weight = self.config.encoder.first_stage_weight

    def facts(self) -> dict[str, Any]:
        """The documents, the first stage and the bi-encoder, for the manifest."""
        passages, dimensions = self.documents.vectors.shape
        return {
            "documents": {"fingerprint": self.collection.fingerprint},
            **self.first_stage,
            "adapter": {
                "encoder": self.encoder.name,
                "hash": self.encoder.hash,
                **self.encoder.facts(),
                "passages": passages,
                "dimensions": dimensions,
                "scale": self.scale,
            },
        }
