"""Re-ranks any run with a model, part by part, in one process, in several, or on a Ray cluster (`rerank score`)."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import broadcast_object_list

from rerank.config import Config, TrainingSettings, sections
from rerank.config.files import check_file
from rerank.data.trec import new_file, write_run
from rerank.experiments.collection import expect_text
from rerank.experiments.runs.manifest import manifest_of, tag_of, write_manifest
from rerank.experiments.scorer import Scoring, open_scoring
from rerank.experiments.text_task import check_encoder
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

MOST_PARTS, LEAST_TOKENS = 100, 2**18
"""By default an interrupted command loses at most one hundredth of its work, or this many tokens."""


def default_parts(tokens: np.ndarray) -> int:
    """The number of parts for queries whose candidates have these numbers of tokens, (queries,)."""
    return max(1, min(MOST_PARTS, len(tokens), int(tokens.sum()) // LEAST_TOKENS))


def cut(tokens: np.ndarray, parts: int) -> list[int]:
    """The parts + 1 bounds of parts of about equal tokens, from those of each query, (queries,); no part is empty."""
    ends, steps = tokens.cumsum(), np.arange(1, parts)
    inner = np.searchsorted(ends, ends[-1] * steps / parts, side="left") + 1
    inner = np.maximum.accumulate(np.maximum(inner, steps) - steps) + steps  # each part has a query
    inner = np.minimum(inner, len(tokens) - parts + steps)
    return [0, *inner.tolist(), len(tokens)]


@dataclass(frozen=True)
class Parts:
    """The parts of the run `out`; part number n, from 1, is the queries bounds[n - 1]:bounds[n].

    `facts` are what the scores depend on; their name is the last column of the run. A hash of them is in the name of
    the folder, so that parts of different inputs are never joined. Every process derives the same plan, so processes
    need no lock: two that score the same part write the same file.
    """

    out: Path
    facts: dict[str, Any]
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
        """Writes the run from its parts, and removes their folder at once; raises UserError if a part is missing."""
        if self.missing():
            raise UserError(f"{self.folder}: parts were removed while others were scored; run the command again")
        with new_file(self.out) as out:
            for number in self.numbers:
                with self.file(number).open("rb") as part:
                    shutil.copyfileobj(part, out)
        remove_at_once(self.folder)


@kept_torch_settings()
def rescore(
    config: Config, checkpoint: str, run: Path | None, out: Path, parts: int | None = None, engine: str = LOCAL
) -> bool:
    """Re-ranks the candidates of a run, to `--first-stage.depth`, and writes the run `out` and its manifest.

    Without `run` it is BM25's, which is retrieved unless it exists. Queries without a text are left out and logged.
    Each of the `parts` (None: up to 100, by the tokens) is written to `out` + ".parts-<hash>" when it is scored, here
    or on the Ray cluster `engine`, and the same call goes on after the last one. Their number may change the last
    digits of a score, as the other documents of a forward pass may.

    Returns whether `out` is written: not if a part has failed on the cluster, which is printed. Raises UserError for a
    model without a trained head, for inputs that are missing or malformed, for an `out` that cannot be written or gives
    the run no name, and if the cluster is lost.
    """
    manifest, here = manifest_of(out), engine == LOCAL
    tag_of(out)  # so that a name that gives no tag is refused before any work
    expect_engine(engine)
    check_encoder(config)
    if config.collection.source:
        expect_text(config.collection.source)
    if run:
        check_file("run", run)
    accelerator = open_accelerator(config.training if here else TrainingSettings(device="cpu"))
    if not here:  # this process scores nothing
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
        plan.join()
        dataset = scoring.dataset
        facts = {
            "model": checkpoint,
            "config": sections(dataset.config),
            "documents": {"fingerprint": dataset.collection.fingerprint, "tokens": plan.facts["documents"]},
            "first_stage": {"run": str(scoring.run), "sha256": plan.facts["run"]},
            "queries": plan.facts["queries"],
            "tokens": int(scoring.tokens.sum()),
            "parts": count,
            **(device_facts(accelerator.device) | precision_facts(accelerator, scoring.model) if here else {}),
            "run": {"sha256": file_hash(out)},
        }
        write_manifest(manifest, facts)
    return True


def _plan(scoring: Scoring, out: Path, parts: int | None) -> Parts:
    """The parts of the run: at most one a query, by default as many as `default_parts` gives."""
    tokens, settings, checkpoint = scoring.tokens, scoring.dataset.config, scoring.checkpoint
    texts = scoring.dataset.collection.queries
    graph = [file_hash(Path(checkpoint) / EXPORT_FILE)] if is_export(checkpoint) else None  # of its other files' hashes
    facts = {
        "run": kept_hash(scoring.run),
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
    return Parts(out, facts, cut(tokens, min(parts or default_parts(tokens), len(tokens))))


def _score_parts(scoring: Scoring, plan: Parts, numbers: Sequence[int]) -> None:
    """Scores parts, those that the main process has found missing, over the processes of the accelerator."""
    accelerator, shared = scoring.accelerator, [numbers]
    broadcast_object_list(shared)
    for number in progress(shared[0], len(shared[0]), "scoring parts", show=accelerator.is_main_process):
        lists = scoring.lists[plan.queries(number)]
        run = score_candidates(scoring.model, scoring.passages, lists, accelerator, scoring.memory, show=False)
        if accelerator.is_main_process:
            write_run(plan.file(number), run, plan.facts["name"])


def _score_on_cluster(
    config: Config, scoring: Scoring, run: Path | None, plan: Parts, numbers: Sequence[int], engine: str
) -> bool:
    """Scores parts on the Ray cluster `engine`; returns whether none has failed, which is printed at the end."""
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
    """Scores a part and writes it, in a worker; raises UserError if this node sees other inputs than the command."""
    scoring, plan = _opened(config, checkpoint, run, expected.out, len(expected.numbers))
    if plan != expected:
        raise UserError(f"{expected.out}: this node has another model, first stage, text or setting than the command")
    _score_parts(scoring, plan, [number])


@lru_cache(maxsize=1)
def _opened(config: Config, checkpoint: str, run: Path | None, out: Path, parts: int) -> tuple[Scoring, Parts]:
    """The model on its device, which each worker opens once, and the plan."""
    scoring = open_scoring(config, checkpoint, run, open_accelerator(config.training))
    return scoring, _plan(scoring, out, parts)
