"""`rerank score`: re-ranks any run with a model, part by part, in one process, in several, or on a Ray cluster."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from accelerate.utils import broadcast_object_list

from rerank.config import Config, TrainingSettings, sections
from rerank.config.files import check_file
from rerank.config.functions import Sections
from rerank.data.trec import new_file, write_run
from rerank.experiments.checks import check_encoder
from rerank.experiments.collection import expect_text
from rerank.experiments.runs.manifest import manifest_of, tag_of, write_manifest
from rerank.experiments.scorer import Scoring, count_taught, open_scoring
from rerank.models.export.folder import is_export
from rerank.models.hub import EXPORT_FILE, file_hashes
from rerank.models.scoring import score_candidates
from rerank.training.device import (
    device_facts,
    expect_one_process,
    kept_torch_settings,
    open_accelerator,
    precision_facts,
)
from rerank.utils.cluster import LOCAL, expect_engine, work_on_ray
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash, kept_hash, remove_at_once, short_hash
from rerank.utils.parallel import failures
from rerank.utils.progress import log, progress

MOST_PARTS = 100
"""Most parts by default: an interrupted command loses one part at most, a hundredth of a long work."""

LEAST_TOKENS = 2**18
"""Least tokens of a part by default, so that small runs have few parts."""

ACTING = {
    "collection": ("source", "queries", "query_field", "language"),
    "first_stage": ("run", "index", "depth", "k1", "b"),
    "encoder": ("max_doc_tokens", "passage_tokens", "passage_overlap", "pooling", "template", "first_stage_weight"),
    "training": ("device", "precision", "tf32", "max_tokens_per_forward"),
}
"""The settings that act on a model that scores, by section."""


def default_parts(tokens: np.ndarray) -> int:
    """The default number of parts; tokens: (queries,), the tokens of each query's candidates."""
    return max(1, min(MOST_PARTS, len(tokens), int(tokens.sum()) // LEAST_TOKENS))


def cut(tokens: np.ndarray, parts: int) -> list[int]:
    """Cuts queries into parts with about equal tokens; returns parts + 1 bounds. No part is empty.

    tokens: (queries,), the tokens of each query's candidates.

    >>> cut(np.array([5, 1, 1, 1]), 2)
    [0, 1, 4]
    """
    ends, steps = tokens.cumsum(), np.arange(1, parts)
    inner = np.searchsorted(ends, ends[-1] * steps / parts, side="left") + 1
    inner = np.maximum.accumulate(np.maximum(inner, steps) - steps) + steps  # each part has a query
    inner = np.minimum(inner, len(tokens) - parts + steps)
    return [0, *inner.tolist(), len(tokens)]


@dataclass(frozen=True)
class Parts:
    """The parts of the run `out`; part n, from 1, has the queries bounds[n - 1]:bounds[n].

    `facts` are the inputs that scores depend on, and the last column of the run. The name of the folder has a hash of
    the facts, so that parts of different inputs are never joined. Every process computes the same plan and needs no
    lock: two processes that score the same part write the same file.
    """

    out: Path
    facts: dict[str, object]
    bounds: list[int]

    @property
    def folder(self) -> Path:
        plan = short_hash(json.dumps(self.facts, sort_keys=True), *self.bounds)
        return self.out.with_name(f"{self.out.name}.parts-{plan[:8]}")

    @property
    def numbers(self) -> range:
        return range(1, len(self.bounds))

    def queries(self, number: int) -> slice:
        return slice(self.bounds[number - 1], self.bounds[number])

    def file(self, number: int) -> Path:
        return self.folder / f"{number:05}.run"

    def missing(self) -> list[int]:
        return [number for number in self.numbers if not self.file(number).exists()]

    def join(self) -> None:
        """Writes the run from its parts and removes their folder; raises UserError if a part is missing."""
        if self.missing():
            raise UserError(f"{self.folder}: parts were removed while others were scored; run the command again")
        with new_file(self.out) as out:
            for number in self.numbers:
                with self.file(number).open("rb") as part:
                    shutil.copyfileobj(part, out)
        remove_at_once(self.folder)


def expect_scorable(config: Config, run: Path | None, out: Path, engine: str) -> Path:
    """The manifest of the run `out`; raises UserError for mistakes that are found without opening the model."""
    manifest = manifest_of(out)
    tag_of(out)
    expect_engine(engine)
    check_encoder(config)
    if config.collection.source:
        expect_text(config.collection.source)
    if run:
        check_file("run", run)
    return manifest


@kept_torch_settings()
def rescore(
    config: Config, checkpoint: str, run: Path | None, out: Path, parts: int | None = None, engine: str = LOCAL
) -> bool:
    """Re-ranks the candidates of a run, down to `--first-stage.depth`, and writes the run `out` and its manifest.

    Without `run`, BM25's run is re-ranked, and retrieved unless it exists. Queries without a text are left out and
    logged. Parts are scored here or on the Ray cluster `engine`. Each of the `parts` (None: up to 100, by tokens) is
    written to `out` + ".parts-<hash>", so that the same call resumes after an interruption. The number of parts may
    change the last digits of a score.

    Returns whether `out` was written; it is not if a part failed on the cluster, which is printed. Raises UserError for
    a model without a trained head, for inputs that are missing or malformed, for an `out` that cannot be written or
    gives the run no name, and if the cluster is lost.
    """
    manifest, here = expect_scorable(config, run, out, engine), engine == LOCAL
    accelerator = open_accelerator(config.training if here else TrainingSettings(device="cpu"))
    if not here:  # this process scores nothing
        expect_one_process(accelerator, f"--on {engine}:")
    scoring = open_scoring(config, checkpoint, run, accelerator)
    taught = count_taught(scoring)
    plan = _plan(scoring, out, parts)
    missing, count = plan.missing(), len(plan.numbers)
    if len(missing) < count:
        log.info(f"{plan.folder}: {count - len(missing)} of {count} parts are there already")
    if here:
        _score_parts(scoring, plan, missing)
    elif not _score_on_cluster(config, scoring, run, plan, missing, engine):
        return False
    if accelerator.is_main_process:
        plan.join()
        dataset = scoring.dataset
        facts = {
            "model": checkpoint,
            "config": _settings(dataset.config),
            "documents": {"fingerprint": dataset.collection.fingerprint, "tokens": plan.facts["documents"]},
            "first_stage": {"run": str(scoring.run), "sha256": plan.facts["run"]},
            "queries": plan.facts["queries"],
            "taught": taught,
            "tokens": int(scoring.tokens.sum()),
            "parts": count,
            **(device_facts(accelerator.device) | precision_facts(accelerator, scoring.model) if here else {}),
            "run": {"sha256": file_hash(out)},
        }
        write_manifest(manifest, facts)
    return True


def _settings(config: Config) -> Sections:
    """The settings that scoring uses, without the model, by section."""
    return {
        section: {key: values[key] for key in ACTING[section]}
        for section, values in sections(config).items()
        if section in ACTING
    }


def _plan(scoring: Scoring, out: Path, parts: int | None) -> Parts:
    """The plan of a run: at most one part a query, by default `default_parts`."""
    tokens, settings, checkpoint = scoring.tokens, scoring.dataset.config, scoring.checkpoint
    texts = scoring.dataset.collection.queries
    facts = {
        "run": kept_hash(scoring.run),
        "depth": settings.first_stage.depth,
        "queries": short_hash(*((found.query_id, texts[found.query_id]) for found in scoring.lists)),
        "documents": scoring.passages.documents.sha256(),
        "checkpoint": short_hash(*model_hashes(checkpoint)),
        "pooling": scoring.model.pooling,
        "template": scoring.model.template,
        "max_length": scoring.passages.max_length,
        "cut": [scoring.passages.cut.tokens, scoring.passages.cut.overlap],
        **{key: getattr(settings.training, key) for key in ("precision", "tf32", "max_tokens_per_forward")},
        "name": tag_of(out),
    }
    return Parts(out, facts, cut(tokens, min(parts or default_parts(tokens), len(tokens))))


def model_hashes(checkpoint: str) -> list[str]:
    """The hashes of the files of a checkpoint, or of an exported graph's record, which has those of its files."""
    return [file_hash(Path(checkpoint) / EXPORT_FILE)] if is_export(checkpoint) else file_hashes(checkpoint)


def _score_parts(scoring: Scoring, plan: Parts, numbers: Sequence[int]) -> None:
    """Scores parts with all processes of the accelerator; the main process says which."""
    accelerator, shared = scoring.accelerator, [numbers]
    broadcast_object_list(shared)
    for number in progress(shared[0], len(shared[0]), "scoring parts", show=accelerator.is_main_process):
        lists = scoring.lists[plan.queries(number)]
        run = score_candidates(scoring.model, scoring.passages, lists, accelerator, scoring.memory, None)
        if accelerator.is_main_process:
            write_run(run, plan.file(number), tag_of(plan.out))


def _score_on_cluster(
    config: Config, scoring: Scoring, run: Path | None, plan: Parts, numbers: Sequence[int], engine: str
) -> bool:
    """Scores parts on the Ray cluster `engine`, prints the failures, and returns whether there were none."""
    if not numbers:
        return True
    config = replace(config, collection=scoring.dataset.config.collection)
    score = partial(_score_part, config, scoring.checkpoint, run, plan)
    ended = work_on_ray(engine, score, numbers, gpus=config.training.device != "cpu")
    failed = failures(ended, len(numbers), "scoring", lambda number: f"part {number}")
    for number, error in failed:
        print(f"failed: part {number}: {error}", file=sys.stderr)
    return not failed


def _score_part(config: Config, checkpoint: str, run: Path | None, expected: Parts, number: int) -> None:
    """Scores a part in a worker and writes it; raises UserError if this node sees other inputs than the command."""
    scoring, plan = _opened(config, checkpoint, run, expected.out, len(expected.numbers))
    if plan != expected:
        raise UserError(f"{expected.out}: this node has another model, first stage, text or setting than the command")
    _score_parts(scoring, plan, [number])


@lru_cache(maxsize=1)
def _opened(config: Config, checkpoint: str, run: Path | None, out: Path, parts: int) -> tuple[Scoring, Parts]:
    """The model on its device and the plan; cached, so each worker opens them once."""
    scoring = open_scoring(config, checkpoint, run, open_accelerator(config.training))
    return scoring, _plan(scoring, out, parts)
