"""Scores a run part by part, the same way in one process, in several, and on the nodes of a cluster."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from accelerate.utils import broadcast_object_list, gather_object

from rerank.jobs.score_parts import Parts, cut, default_parts
from rerank.jobs.scoring import Scoring
from rerank.models.export.folder import is_export
from rerank.models.hub import encoder_folder
from rerank.models.pair_chunks import chunk_by_length, pairs_of
from rerank.models.scoring import make_run, score_chunks
from rerank.runs.output_run import tag_of
from rerank.training.device import arithmetic, device_name, precision_facts
from rerank.utils.errors import UserError
from rerank.utils.files import short_hash
from rerank.utils.integrity import HASH, files_below, record_of
from rerank.utils.kept_hashes import kept_hash
from rerank.utils.progress import log, progress


def place(scoring: Scoring) -> None:
    """Puts the model on its device, and logs how it is used there."""
    accelerator = scoring.accelerator
    lines = scoring.model.place(accelerator.device, accelerator.autocast)
    if accelerator.is_main_process:
        for line in lines:
            log.info(line)


def plan_parts(scoring: Scoring, out: Path, parts: int | None, folder: Path | None = None) -> Parts:
    """The parts of the run, by default as many as `default_parts` gives, in `folder`, by default `out` + ".parts".

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
    return Parts(out, folder or out.with_name(f"{out.name}.parts"), facts, cut(tokens, parts or default_parts(tokens)))


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
            device = {"device": str(accelerator.device), "device_name": device_name(accelerator.device)}
            plan.write(number, run, device | {"arithmetic": arithmetic(), **precision_facts(accelerator)})


def _model_hash(checkpoint: str) -> str:
    """A hash of the files of a model, but for its model card."""
    folder = Path(checkpoint) if is_export(checkpoint) else encoder_folder(checkpoint)
    files = [file for file in files_below(folder) if file.suffix != ".md"]
    return short_hash(*(f"{name} {facts[HASH]}" for name, facts in record_of(folder, files).items()))
