"""Scores a run part by part and joins the parts: the same in one process, in several, and on the nodes of a cluster."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object

from rerank.batches.passages import PassageBuilder
from rerank.config import Config, sections
from rerank.data.collections import Collection
from rerank.data.types import Candidates
from rerank.experiments.score_parts import Parts, cut, default_parts, ranges
from rerank.experiments.text import TextDataset
from rerank.models.checkpoints import pretraining_of
from rerank.models.export.folder import is_export
from rerank.models.hub import encoder_folder
from rerank.models.memory import TokenBudget, open_budget
from rerank.models.pair_chunks import chunk_by_length, pairs_of
from rerank.models.scoring import make_run, scored_chunks
from rerank.runs.manifest import read_manifest, write_manifest
from rerank.training.device import arithmetic, device_name, precision_facts
from rerank.utils.errors import UserError
from rerank.utils.files import file_hash, short_hash
from rerank.utils.integrity import HASH, files_below, record_of
from rerank.utils.kept_hashes import kept_hash
from rerank.utils.progress import log, progress

QUERIES_AT_ONCE = 1000
"""How many queries' candidates are counted together."""


@dataclass(frozen=True)
class Scoring:
    """What scores a run: the model, the passages and the lists of candidates, without empty ones.

    `config` and `collection` are those that were asked for, completed by what the checkpoint and the collection say;
    `notes` are lines about queries that are left out.
    """

    checkpoint: str
    config: Config
    collection: Collection
    dataset: TextDataset
    model: Any
    passages: PassageBuilder
    lists: list[Candidates]
    accelerator: Accelerator
    notes: list[str]

    @cached_property
    def memory(self) -> TokenBudget:
        """The tokens that go into a forward pass."""
        return open_budget(self.config.training.max_tokens_per_forward, self.accelerator.device)

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


def place(scoring: Scoring) -> None:
    """Puts the model on its device, and logs how it is used there and which queries are left out."""
    accelerator = scoring.accelerator
    lines = scoring.model.place(accelerator.device, accelerator.autocast)
    if accelerator.is_main_process:
        for line in (*lines, *scoring.notes):
            log.info(line)


def plan_parts(scoring: Scoring, out: Path, folder: Path, tag: str, parts: int | None) -> Parts:
    """The parts of the run, by default as many as `default_parts` says; raises UserError for more than its queries."""
    tokens = scoring.tokens
    if parts and parts > len(tokens):
        raise UserError(
            f"--parts {parts}: the run has {len(tokens)} queries with candidates; expected {len(tokens)} or less"
        )
    config, model, dataset = scoring.config, scoring.model, scoring.dataset
    texts = dataset.collection.queries
    facts = {
        "run": kept_hash(dataset.first_stage),
        "depth": config.first_stage.depth,
        "queries": short_hash(*((found.query_id, texts[found.query_id]) for found in scoring.lists)),
        "documents": scoring.passages.documents.sha256(),
        "checkpoint": _model_hash(scoring.checkpoint),
        "pooling": model.pooling,
        "template": model.template,
        "max_length": scoring.passages.max_length,
        **{key: getattr(config.training, key) for key in ("precision", "tf32", "max_tokens_per_forward")},
        "name": tag,
    }
    return Parts(out, folder, facts, cut(tokens, parts or default_parts(tokens)))


def score_parts(scoring: Scoring, plan: Parts, tag: str, numbers: Sequence[int] | None = None) -> None:
    """Scores the parts of these numbers that are missing, by default all, over the processes of the accelerator."""
    accelerator = scoring.accelerator
    missing = [[number for number in numbers or range(1, plan.count + 1) if plan.record(number) is None]]
    broadcast_object_list(missing)  # what the main process has found
    if accelerator.is_main_process and len(missing[0]) < (kept := len(numbers or range(plan.count))):
        log.info(f"{plan.folder}: {kept - len(missing[0])} of {kept} parts are there already")
    documents = sum(len(found.doc_ids) for number in missing[0] for found in scoring.lists[plan.queries(number)])
    for _ in progress(_scored(scoring, plan, tag, missing[0]), documents, "scoring", show=accelerator.is_main_process):
        pass


def _scored(scoring: Scoring, plan: Parts, tag: str, numbers: Sequence[int]) -> Iterator[None]:
    """Scores the parts one after the other, and yields once for each document of them, whatever process scored it."""
    accelerator, memory = scoring.accelerator, scoring.memory
    for number in numbers:
        lists = scoring.lists[plan.queries(number)]
        memory.agree(accelerator)
        pairs = pairs_of(lists)
        chunks = chunk_by_length(pairs, scoring.passages, memory.tokens)
        own, left, scored = chunks[accelerator.process_index :: accelerator.num_processes], len(pairs), []
        found = scored_chunks(scoring.model, scoring.passages, own, accelerator.device, accelerator.autocast, memory)
        for chunk in found:
            scored += chunk
            step = min(left, len(chunk) * accelerator.num_processes)
            left -= step
            yield from itertools.repeat(None, step)
        if accelerator.num_processes > 1:
            scored = gather_object(scored)
        run = make_run(lists, scored, scoring.model.first_stage_weight)
        if accelerator.is_main_process:
            plan.write(number, run, tag, _device_facts(accelerator))
        yield from itertools.repeat(None, left)


def join_parts(scoring: Scoring, plan: Parts, manifest: Path | None) -> bool:
    """Joins the parts, writes the manifest and removes the parts; if some are missing, logs which and returns False."""
    device = plan.join()
    if device is None and not is_joined(plan, manifest):
        log.info(f"{plan.out}: is written when all {plan.count} parts are there; missing: {ranges(plan.missing())}")
        return False
    if device is not None and manifest is not None:
        facts = {
            "model": scoring.checkpoint,
            "pretraining": pretraining_of(scoring.model),
            "config": sections(scoring.config),
            "documents": {"fingerprint": scoring.collection.fingerprint, "tokens": plan.facts["documents"]},
            "first_stage": {"run": str(scoring.dataset.first_stage), "sha256": plan.facts["run"]},
            "queries": plan.facts["queries"],
            "tokens": int(scoring.tokens.sum()),
            "parts": plan.count,
            "plan": plan.plan,
            **device,
            "run": {"sha256": file_hash(plan.out)},
        }
        write_manifest(manifest, facts)
    plan.remove()
    return True


def is_joined(plan: Parts, manifest: Path | None) -> bool:
    """Whether the run of this plan is there, with its manifest: another command has joined the parts."""
    if manifest is None or not manifest.is_file() or not plan.out.is_file():
        return False
    try:
        facts = read_manifest(manifest)
    except UserError:  # it is replaced when the parts are joined
        return False
    return facts.get("plan") == plan.plan and facts.get("run") == {"sha256": file_hash(plan.out)}


def _model_hash(checkpoint: str) -> str:
    """A hash of the files of a model, but for its model card."""
    folder = Path(checkpoint) if is_export(checkpoint) else encoder_folder(checkpoint)
    files = [file for file in files_below(folder) if file.suffix != ".md"]
    return short_hash(*(f"{name} {facts[HASH]}" for name, facts in record_of(folder, files).items()))


def _device_facts(accelerator: Accelerator) -> dict[str, Any]:
    return {
        "device": str(accelerator.device),
        "device_name": device_name(accelerator.device),
        "arithmetic": arithmetic(),
        **precision_facts(accelerator),
    }
