"""Scores a run part by part, the same way in one process, in several, and on the nodes of a Ray cluster."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from accelerate.utils import broadcast_object_list, gather_object

from rerank.config import Config
from rerank.jobs.parts import Parts, cut, default_parts
from rerank.jobs.scoring import Scoring, open_scoring
from rerank.models.export.folder import is_export
from rerank.models.hub import encoder_folder
from rerank.models.pair_chunks import chunk_by_length, pairs_of
from rerank.models.scoring import make_run, score_chunks
from rerank.runs.output_run import tag_of
from rerank.training.device import arithmetic, device_name, open_accelerator, precision_facts
from rerank.utils.cluster.jobs import work_on_ray
from rerank.utils.errors import UserError
from rerank.utils.files import short_hash
from rerank.utils.integrity import HASH, files_below, record_of
from rerank.utils.kept_hashes import kept_hash
from rerank.utils.progress import log, progress
from rerank.utils.workers import failures


def plan_parts(scoring: Scoring, out: Path, parts: int | None, folder: Path | None = None) -> Parts:
    """The parts of the run, by default as many as `default_parts` gives, and a folder beside `out`.

    Raises UserError for more parts than queries.
    """
    tokens, config = scoring.tokens, scoring.config
    if parts and parts > len(tokens):
        raise UserError(
            f"--parts {parts}: the run has {len(tokens)} queries with candidates; expected {len(tokens)} or less"
        )
    texts = scoring.dataset.collection.queries
    facts = {
        "run": kept_hash(scoring.dataset.first_stage),
        "depth": config.first_stage.depth,
        "queries": short_hash(*((found.query_id, texts[found.query_id]) for found in scoring.lists)),
        "documents": scoring.passages.documents.sha256(),
        "checkpoint": _model_hash(scoring.checkpoint),
        "pooling": scoring.model.pooling,
        "template": scoring.model.template,
        "max_length": scoring.passages.max_length,
        **{key: getattr(config.training, key) for key in ("precision", "tf32", "max_tokens_per_forward")},
        "name": tag_of(out),
    }
    return Parts(out, facts, cut(tokens, parts or default_parts(tokens)), folder)


def score_parts(scoring: Scoring, plan: Parts, numbers: Sequence[int]) -> None:
    """Scores those of these parts that are missing, over the processes of the accelerator."""
    accelerator = scoring.accelerator
    shared = [plan.missing(numbers)]
    broadcast_object_list(shared)  # what the main process has found
    missing = shared[0]
    if accelerator.is_main_process and len(missing) < len(numbers):
        log.info(f"{plan.folder}: {len(numbers) - len(missing)} of {len(numbers)} parts are there already")
    documents = sum(len(found.doc_ids) for number in missing for found in scoring.lists[plan.queries(number)])
    own = documents // accelerator.num_processes
    for _ in progress(_scored(scoring, plan, missing), own, "scoring", show=accelerator.is_main_process):
        pass


def _scored(scoring: Scoring, plan: Parts, numbers: Sequence[int]) -> Iterator[None]:
    """Scores the parts one after the other; yields once for each document that this process has scored."""
    accelerator, memory = scoring.accelerator, scoring.memory
    for number in numbers:
        lists = scoring.lists[plan.queries(number)]
        memory.agree(accelerator)
        chunks = chunk_by_length(pairs_of(lists), scoring.passages, memory.tokens)
        own, scored = chunks[accelerator.process_index :: accelerator.num_processes], []
        for pair in score_chunks(
            scoring.model, scoring.passages, own, accelerator.device, accelerator.autocast, memory, show=False
        ):
            scored.append(pair)
            yield
        if accelerator.num_processes > 1:
            scored = gather_object(scored)
        run = make_run(lists, scored, scoring.model.first_stage_weight)
        if accelerator.is_main_process:
            device = accelerator.device
            facts = {"device": str(device), "device_name": device_name(device), "arithmetic": arithmetic()}
            plan.write(number, run, {**facts, **precision_facts(accelerator, scoring.model)})


def score_on_cluster(config: Config, scoring: Scoring, run: Path | None, plan: Parts, engine: str) -> bool:
    """Scores the missing parts of a plan on the Ray cluster `engine`; returns whether no part has failed.

    A part that fails does not stop the others; it is reported at the end, on standard error.
    """
    config, count = replace(config, collection=scoring.config.collection), len(plan.numbers)
    missing = plan.missing(plan.numbers)
    if len(missing) < count:
        log.info(f"{plan.folder}: {count - len(missing)} of {count} parts are there already")
    if not missing:
        return True
    score = partial(_score_part, config, scoring.checkpoint, run, plan)
    ended = work_on_ray(engine, score, missing, plan.folder, gpus=config.training.device != "cpu")
    failed = failures(ended, len(missing), "scoring", lambda number: f"part {number}")
    for number, error in failed:
        print(f"failed: part {number}: {error}", file=sys.stderr)
    return not failed


def _score_part(config: Config, checkpoint: str, run: Path | None, expected: Parts, number: int) -> None:
    """Scores a part and writes it, in a worker; raises UserError if this node sees other inputs than the command."""
    scoring, plan = _opened(config, checkpoint, run, expected.out, len(expected.numbers))
    if plan != expected:
        raise UserError(f"{expected.out}: this node has another model, first stage, text or setting than the command")
    score_parts(scoring, plan, [number])


@lru_cache(maxsize=1)
def _opened(config: Config, checkpoint: str, run: Path | None, out: Path, parts: int) -> tuple[Scoring, Parts]:
    """The model on its device, which each worker opens once, and the plan."""
    training = config.training
    accelerator = open_accelerator(training.precision, training.device, tf32=training.tf32)
    scoring = open_scoring(config, checkpoint, run, accelerator)
    return scoring, plan_parts(scoring, out, parts)


def _model_hash(checkpoint: str) -> str:
    """A hash of the files of a model, but for its model card."""
    folder = Path(checkpoint) if is_export(checkpoint) else encoder_folder(checkpoint)
    files = [file for file in files_below(folder) if file.suffix != ".md"]
    return short_hash(*(f"{name} {facts[HASH]}" for name, facts in record_of(folder, files).items()))
