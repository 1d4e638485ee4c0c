"""Opens what scores a run: the model, and the passages of the candidates of each query that has a text."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator

from rerank.batches.passages import PassageBuilder
from rerank.config import Config
from rerank.data.candidates import select_candidates
from rerank.data.collections import Collection, open_collection
from rerank.data.trec_arrays import read_run_arrays
from rerank.data.types import Candidates
from rerank.models.checkpoints import open_trained_cross_encoder
from rerank.models.memory import TokenBudget, open_budget
from rerank.models.scoring import pairs_of
from rerank.runs.layout import CollectionFolder
from rerank.tasks.collection import as_trained, open_trained_on
from rerank.tasks.first_stage import first_stage_run, with_texts
from rerank.tasks.text import TextDataset, truncation_summary
from rerank.utils.errors import UserError
from rerank.utils.progress import log

QUERIES_AT_ONCE = 1000
"""The queries whose candidates' tokens are counted together."""


@dataclass(frozen=True)
class Scoring:
    """What scores a run: the model on its device, the passages and the lists of candidates, without empty ones.

    The settings of the data set are those of the caller, completed with what the checkpoint and the collection record.
    """

    checkpoint: str
    collection: Collection
    dataset: TextDataset
    model: Any
    passages: PassageBuilder
    lists: list[Candidates]
    accelerator: Accelerator

    @cached_property
    def memory(self) -> TokenBudget:
        """The tokens of a forward pass."""
        return open_budget(self.dataset.config.training.max_tokens_per_forward, self.accelerator.device)

    @cached_property
    def tokens(self) -> np.ndarray:
        """(queries,) the tokens of all passages of each query's candidates."""
        found = []
        for first in range(0, len(self.lists), QUERIES_AT_ONCE):
            lists = self.lists[first : first + QUERIES_AT_ONCE]
            _, tokens = self.passages.sizes(pairs_of(lists))
            starts = np.cumsum([0, *(len(candidates.doc_ids) for candidates in lists[:-1])])
            found.append(np.add.reduceat(tokens, starts))
        return np.concatenate(found)


def open_scoring(config: Config, checkpoint: str, run: Path | None, accelerator: Accelerator) -> Scoring:
    """Opens the model and the candidates of the run; retrieves and tokenises what is missing.

    Without a collection in the settings it is the one of the checkpoint. Logs which queries are left out and how many
    texts are cut. Raises UserError for a checkpoint that records no collection if the settings have none.
    """
    model, tokenizer, max_length, max_doc_tokens = open_trained_cross_encoder(
        checkpoint, config.encoder.pooling, config.encoder.max_doc_tokens, config.encoder.template
    )
    with accelerator.main_process_first():
        settings = config.collection
        if settings.source:
            collection = open_collection(settings.source)
        else:
            collection = open_trained_on(checkpoint, model.settings)
            settings = as_trained(settings, model.settings)
        collection = replace(collection, queries_file=settings.queries)
        config = replace(
            config,
            collection=replace(settings, source=collection.source),
            encoder=replace(config.encoder, max_doc_tokens=max_doc_tokens, first_stage_weight=model.first_stage_weight),
            first_stage=replace(config.first_stage, run=str(run) if run else config.first_stage.run),
        )
        dataset = _run_dataset(config, collection)
        passages = dataset.passages(tokenizer, max_length, model.template)
    placed = model.place(accelerator.device, accelerator.autocast, config.training.precision == "auto")
    for line in (truncation_summary(passages, max_doc_tokens), *placed):
        log.info(line)
    lists = [candidates for candidates in dataset.candidates.values() if candidates.doc_ids]
    return Scoring(checkpoint, collection, dataset, model, passages, lists, accelerator)


def _run_dataset(config: Config, collection: Collection) -> TextDataset:
    """The data set of the queries of a run, judged or not; logs which queries are left out.

    Raises UserError if no query of the run has a text.
    """
    folder = CollectionFolder(Path(config.output.folder) / collection.name)
    run, file = first_stage_run(config, collection, folder), config.collection.queries
    depth, keep_scores = config.first_stage.depth, config.encoder.first_stage_weight > 0
    found = read_run_arrays(run, depth, collection.queries)
    known = [query_id for query_id in collection.queries if query_id in found]
    if missing := [query_id for query_id in found if query_id not in collection.queries]:
        texts, those = file or collection.source, f"the {len(found)} queries of {run}"
        if not known:
            raise UserError(
                f"{texts}: has the text of none of {those}, such as {missing[0]}; expected a run for this collection, "
                "or --collection.queries, a file of their texts"
            )
        log.info(
            f"{texts}: has no text of {len(missing)} of {those}, such as {', '.join(missing[:3])}: they are not "
            "re-ranked, and not in the output"
        )
    candidates = select_candidates(found, {}, depth, known, keep_scores)
    return TextDataset(config, folder, with_texts(config, collection, folder), run, candidates, config.encoder.name)
