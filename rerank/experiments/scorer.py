"""Opens the model and the candidates to score for a run."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from accelerate import Accelerator

from rerank.batches.passages import PassageBuilder
from rerank.config import Config, FirstStageSettings
from rerank.data.candidates import select_candidates
from rerank.data.runs import read_run_arrays
from rerank.data.taught import taught_queries
from rerank.data.types import Candidates
from rerank.experiments.checks import cut_of
from rerank.experiments.collection import as_trained, collection_of, folder_of
from rerank.experiments.first_stage import first_stage_run, with_texts
from rerank.experiments.text_task import TextDataset, truncation_summary
from rerank.models.checkpoints import open_trained_cross_encoder
from rerank.models.compiled import WORTH_COMPILING, compile_layers
from rerank.models.cross_encoder import CrossEncoder
from rerank.models.export.folder import is_export
from rerank.models.hub import encoder_folder, read_configs
from rerank.models.memory import TokenBudget, open_budget
from rerank.models.scoring import Scorer, pairs_of
from rerank.utils.errors import UserError
from rerank.utils.progress import log

QUERIES_AT_ONCE = 1000
"""Queries whose candidates' tokens are counted together, which bounds the memory."""


@dataclass(frozen=True)
class Scoring:
    """A model on its device and the candidates that it scores; `dataset.config` includes the checkpoint's settings."""

    checkpoint: str
    dataset: TextDataset
    model: Scorer
    passages: PassageBuilder
    lists: list[Candidates]
    accelerator: Accelerator
    memory: TokenBudget

    @property
    def run(self) -> Path:
        """The run whose candidates are scored."""
        assert self.dataset.first_stage is not None  # see _run_dataset
        return self.dataset.first_stage

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
    """Opens the model and the candidates of the run; retrieves and tokenises if necessary.

    If the settings name no collection, the checkpoint's is used; raises UserError if the checkpoint records none.
    """
    training, first_stage, encoder = config.training, config.first_stage, config.encoder
    cut = cut_of(encoder)
    model = open_trained_cross_encoder(checkpoint, encoder.pooling, encoder.max_doc_tokens, encoder.template, cut)
    with accelerator.main_process_first():
        config = replace(
            config,
            collection=as_trained(config.collection, checkpoint, model.settings),
            encoder=replace(
                encoder,
                max_doc_tokens=model.max_doc_tokens,
                passage_tokens=model.cut.tokens,
                passage_overlap=model.cut.overlap,
                first_stage_weight=model.first_stage_weight,
            ),
            first_stage=replace(first_stage, run=str(run) if run else first_stage.run),
        )
        dataset = _run_dataset(config)
        passages = dataset.passages(model)
    placed = model.place(accelerator.device, accelerator.autocast, training.precision == "auto")
    for line in (truncation_summary(passages, model.max_doc_tokens), *placed):
        log.info(line)
    lists = [candidates for candidates in dataset.candidates.values() if candidates.doc_ids]
    is_long = sum(len(candidates.doc_ids) for candidates in lists) >= WORTH_COMPILING
    if is_long and isinstance(model, CrossEncoder) and (reason := compile_layers(model, accelerator.autocast)):
        log.info(reason)
    memory = open_budget(training.max_tokens_per_forward, accelerator.device)
    return Scoring(checkpoint, dataset, model, passages, lists, accelerator, memory)


def recorded_depth(checkpoint: str) -> int:
    """The candidates of a query that a checkpoint was trained on; the default depth if it does not record any."""
    folder = _folder_of(checkpoint)
    if not (folder / "config.json").is_file():  # a damaged export, which says so when it is opened
        return FirstStageSettings().depth
    depth = read_configs(folder).get("rerank", {}).get("depth")
    if depth is None:
        return FirstStageSettings().depth
    log.info(f"{checkpoint}: re-ranks {depth} documents of a query, as in its training; --depth changes that")
    return depth


def _folder_of(checkpoint: str) -> Path:
    """The folder of a checkpoint, of an exported graph, or of a model of the hub."""
    return Path(checkpoint) if is_export(checkpoint) else encoder_folder(checkpoint)


def count_taught(scoring: Scoring) -> int | None:
    """How many of the queries trained the model or chose its epoch; None if its folder does not say. Logs either."""
    checkpoint, collection = scoring.checkpoint, scoring.dataset.collection
    try:
        own = collection.origin.queries
    except UserError:  # documents alone: the queries are those of a file
        own = {}
    asked = {one.query_id for one in scoring.lists if own.get(one.query_id) == collection.queries[one.query_id]}
    taught = taught_queries(_folder_of(checkpoint), collection.fingerprint, asked)
    if taught:
        log.info(
            f"{len(taught)} of {len(scoring.lists)} queries trained the model or chose its epoch: this run does not "
            "say how good it is"
        )
    elif asked and taught is None and scoring.model.settings.get("collection") == collection.source:
        log.info(f"{checkpoint}: was trained on queries of {collection.source}, perhaps on some of these")
    return None if asked and taught is None else len(taught or ())


def _run_dataset(config: Config) -> TextDataset:
    """The data set of the queries of a run; logs queries without a text, raises UserError if no query has one."""
    collection = collection_of(config.collection)
    folder = folder_of(config, collection)
    run, file = first_stage_run(config, collection, folder), config.collection.queries
    depth, keep_scores = config.first_stage.depth, config.encoder.first_stage_weight > 0
    found = read_run_arrays(run, depth, collection.queries)
    known = [query_id for query_id in collection.queries if query_id in found]
    if missing := [query_id for query_id in found if query_id not in collection.queries]:
        texts, queries = file or collection.source, f"the {len(found)} queries of {run}"
        if not known:
            raise UserError(
                f"{texts}: has the text of none of {queries}, such as {missing[0]}; expected a run for this "
                "collection, or --collection.queries, a file of their texts"
            )
        log.info(
            f"{texts}: has no text of {len(missing)} of {queries}, such as {', '.join(missing[:3])}: they are not "
            "re-ranked, and not in the output"
        )
    candidates = select_candidates(found, {}, depth, known, keep_scores)
    return TextDataset(config, folder, with_texts(config, collection, folder), run, candidates)
