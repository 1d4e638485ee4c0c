"""Re-ranks any run with a trained or a hub model, part by part (`rerank score`).

Parts are scored the same way in one process, in several, and on the nodes of a Ray cluster.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from accelerate.utils import broadcast_object_list, gather_object

from rerank.config import Config, sections
from rerank.config.files import check_file
from rerank.jobs.parts import Parts, cut, default_parts
from rerank.jobs.scoring import Scoring, open_scoring
from rerank.models.export.folder import is_export
from rerank.models.hub import EXPORT_FILE, file_hashes
from rerank.models.scoring import chunk_by_length, make_run, pairs_of, score_chunks
from rerank.runs.manifest import manifest_of, tag_of, write_manifest
from rerank.tasks.checks import check_encoder
from rerank.tasks.collection import expect_text
from rerank.training.device import (
    device_facts,
    expect_one_process,
    open_accelerator,
    open_training_accelerator,
    precision_facts,
)
from rerank.utils.cluster import LOCAL, expect_engine, work_on_ray
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash, kept_hash, short_hash
from rerank.utils.progress import log, progress
from rerank.utils.workers import failures


def rescore(
    config: Config, checkpoint: str, run: Path | None, out: Path, parts: int | None = None, engine: str = LOCAL
) -> bool:
    """Re-ranks the candidates of a run, to `--first-stage.depth`, and writes the run `out` and its manifest.

    The texts of the queries are those of the file `--collection.queries`, else of the collection. Queries without a
    text are left out and logged; judgments are not read. Each part of the run is written to `out` + ".parts-<hash>"
    when it is scored, and the same call goes on after the last one; in the end they are joined, and the folder is
    removed.

    Args:
        config: the settings; the pooling and the length of documents of a checkpoint made by training come first, and
            without a collection it is the one that the checkpoint was trained on.
        checkpoint: the folder of a trained model, or the name of a cross-encoder on the hub.
        run: the TREC run to re-rank. None for BM25's, which is retrieved first unless it exists.
        out: the TREC run to write; `out` + ".json" is its manifest.
        parts: how many parts the queries are cut into; None for up to 100, by the tokens. The last digits of a score
            may depend on it, as they do on the other documents of a forward pass.
        engine: "local", or the Ray cluster that scores the parts: "ray" or "ray://HOST:PORT".

    Returns:
        Whether `out` is written: not if a part has failed on the cluster, which is printed, and which the same call
        scores again.

    Raises:
        UserError: the model has no trained head, the collection is unknown or has no text, no query of the run has a
            text, a file is missing or malformed, `out` cannot be written or gives the run no name, or the cluster is
            lost.
    """
    manifest, here = manifest_of(out), engine == LOCAL
    tag_of(out)  # so that a name that gives no tag is refused before any work
    expect_engine(engine)
    check_encoder(config)
    if config.collection.source:
        expect_text(config.collection.source)
    if run:
        check_file("run", run)
    if here:
        accelerator = open_training_accelerator(config.training)
    else:
        accelerator = open_accelerator(device="cpu")  # this process scores nothing
        expect_one_process(accelerator, f"--on {engine}:")
    scoring = open_scoring(config, checkpoint, run, accelerator)
    plan = _plan(scoring, out, parts)
    missing, count = plan.missing(), len(plan.numbers)
    if len(missing) < count:
        log.info(f"{plan.folder}: {count - len(missing)} of {count} parts are there already")
    if here:
        _score_parts(scoring, plan, missing)
    elif not _score_on_cluster(config, scoring, run, plan, missing, engine):
        return False
    if accelerator.is_main_process:
        _write_manifest(manifest, scoring, plan, plan.join())
        plan.remove()
    return True


def _plan(scoring: Scoring, out: Path, parts: int | None) -> Parts:
    """The parts of the run, by default as many as `default_parts` gives; raises UserError for more than queries."""
    tokens, settings, checkpoint = scoring.tokens, scoring.dataset.config, scoring.checkpoint
    if parts and parts > len(tokens):
        raise UserError(
            f"--parts {parts}: the run has {len(tokens)} queries with candidates; expected {len(tokens)} or less"
        )
    texts = scoring.dataset.collection.queries
    graph = [file_hash(Path(checkpoint) / EXPORT_FILE)] if is_export(checkpoint) else None  # of its other files' hashes
    facts = {
        "run": kept_hash(scoring.dataset.first_stage),
        "depth": settings.first_stage.depth,
        "queries": short_hash(*((found.query_id, texts[found.query_id]) for found in scoring.lists)),
        "documents": scoring.passages.documents.sha256(),
        "checkpoint": short_hash(*(graph or file_hashes(checkpoint))),
        "pooling": scoring.model.pooling,
        "template": scoring.model.template,
        "max_length": scoring.passages.max_length,
        **{key: getattr(settings.training, key) for key in ("precision", "tf32", "max_tokens_per_forward")},
        "name": tag_of(out),
    }
    return Parts(out, facts, cut(tokens, parts or default_parts(tokens)))


def _score_parts(scoring: Scoring, plan: Parts, numbers: Sequence[int]) -> None:
    """Scores parts, those that the main process has found missing, over the processes of the accelerator."""
    accelerator = scoring.accelerator
    shared = [numbers]
    broadcast_object_list(shared)
    documents = sum(len(found.doc_ids) for number in shared[0] for found in scoring.lists[plan.queries(number)])
    own = documents // accelerator.num_processes
    for _ in progress(_scored(scoring, plan, shared[0]), own, "scoring", show=accelerator.is_main_process):
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
            facts = device_facts(accelerator.device) | precision_facts(accelerator, scoring.model)
            plan.write(number, run, facts)


def _score_on_cluster(
    config: Config, scoring: Scoring, run: Path | None, plan: Parts, numbers: Sequence[int], engine: str
) -> bool:
    """Scores parts on the Ray cluster `engine`; returns whether none has failed.

    A part that fails does not stop the others; it is reported at the end, on standard error.
    """
    if not numbers:
        return True
    score = partial(
        _score_part, replace(config, collection=scoring.dataset.config.collection), scoring.checkpoint, run, plan
    )
    ended = work_on_ray(engine, score, numbers, gpus=config.training.device != "cpu")
    failed = failures(ended, len(numbers), "scoring", lambda number: f"part {number}")
    for number, error in failed:
        print(f"failed: part {number}: {error}", file=sys.stderr)
    return not failed


def _score_part(config: Config, checkpoint: str, run: Path | None, expected: Parts, number: int) -> None:
    """Scores a part and writes it, in a worker; raises UserError if this node sees other inputs than the command."""
    scoring, plan = _opened(config, checkpoint, run, expected.out, len(expected.numbers))
    if plan != expected:
        raise UserError(f"{expected.out}: this node has another model, first stage, text or setting than the command")
    _score_parts(scoring, plan, [number])


@lru_cache(maxsize=1)
def _opened(config: Config, checkpoint: str, run: Path | None, out: Path, parts: int) -> tuple[Scoring, Parts]:
    """The model on its device, which each worker opens once, and the plan."""
    scoring = open_scoring(config, checkpoint, run, open_training_accelerator(config.training))
    return scoring, _plan(scoring, out, parts)


def _write_manifest(file: Path, scoring: Scoring, plan: Parts, device: dict[str, object]) -> None:
    facts = {
        "model": scoring.checkpoint,
        "pretraining": scoring.model.settings.get("pretraining"),
        "config": sections(scoring.dataset.config),
        "documents": {"fingerprint": scoring.collection.fingerprint, "tokens": plan.facts["documents"]},
        "first_stage": {"run": str(scoring.dataset.first_stage), "sha256": plan.facts["run"]},
        "queries": plan.facts["queries"],
        "tokens": int(scoring.tokens.sum()),
        "parts": len(plan.numbers),
        **device,
        "run": {"sha256": file_hash(plan.out)},
    }
    write_manifest(file, facts)
