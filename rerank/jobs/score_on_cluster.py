"""Scores the parts of a run on a Ray cluster; each worker opens the model once."""

import functools
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rerank.config import Config
from rerank.jobs.score_parts import Parts
from rerank.jobs.score_run import place, plan_parts, score_parts
from rerank.jobs.scoring import Scoring, open_scoring
from rerank.training.device import open_accelerator
from rerank.utils.cluster.jobs import work_on_ray
from rerank.utils.progress import log
from rerank.utils.workers import failures


class Job(NamedTuple):
    """A part of a run to score: the arguments of `rescore`, with the collection and the number of parts settled."""

    config: Config
    checkpoint: str
    run: Path | None
    out: Path
    parts: int
    part: int


def score_on_cluster(config: Config, scoring: Scoring, run: Path | None, plan: Parts, engine: str) -> bool:
    """Scores the missing parts of a plan on the Ray cluster `engine`; returns whether no part has failed.

    A part that fails does not stop the others; it is reported at the end, on standard error.
    """
    settled, count, missing = replace(config, collection=scoring.config.collection), len(plan.numbers), plan.missing()
    jobs = [Job(settled, scoring.checkpoint, run, plan.out, count, part) for part in missing]
    if len(jobs) < count:
        log.info(f"{plan.folder}: {count - len(jobs)} of {count} parts are there already")
    if not jobs:
        return True
    ended = work_on_ray(engine, score_part, jobs, plan.folder, gpus=config.training.device != "cpu")
    failed = failures(ended, len(jobs), "scoring", lambda job: f"part {job.part}")
    for job, error in failed:
        print(f"failed: part {job.part}: {error}", file=sys.stderr)
    return not failed


def score_part(job: Job) -> None:
    """Scores a part and writes it, in a worker; raises UserError if this node sees other inputs than the command."""
    scoring, plan = _opened(*job[:-1])
    score_parts(scoring, plan, [job.part])


@functools.lru_cache(maxsize=1)
def _opened(config: Config, checkpoint: str, run: Path | None, out: Path, parts: int) -> tuple[Scoring, Parts]:
    """The model on its device, and the plan, which is that of the command."""
    training = config.training
    accelerator = open_accelerator(training.precision, training.device, tf32=training.tf32)
    scoring = open_scoring(config, checkpoint, run, config.collection.source, accelerator)
    plan = plan_parts(scoring, out, parts)
    plan.open()
    place(scoring)
    return scoring, plan
