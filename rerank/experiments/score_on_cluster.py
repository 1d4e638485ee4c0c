"""Scores the parts of a run on a Ray cluster; each worker opens the model once."""

import functools
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rerank.config import Config
from rerank.experiments.rescore import check_scoring, open_scoring
from rerank.experiments.score_parts import Parts, parts_folder
from rerank.experiments.score_run import Scoring, join_parts, place, plan_parts, score_parts
from rerank.runs.output_run import manifest_of, tag_of
from rerank.training.device import open_accelerator
from rerank.training.processes import expect_one_process
from rerank.utils.cluster.jobs import expect_engine, work_on_ray
from rerank.utils.errors import UserError
from rerank.utils.progress import log
from rerank.utils.workers import failures


class Run(NamedTuple):
    """What a worker opens: the arguments of `rescore`, with the collection and the number of parts settled."""

    config: Config
    checkpoint: str
    run: Path | None
    out: Path
    collection: str
    parts: int


class Job(NamedTuple):
    """A part of a run, and the hash of the plan that the command has made."""

    of: Run
    plan: str
    number: int


def rescore_on_cluster(
    config: Config, checkpoint: str, run: Path | None, out: Path, collection: str, parts: int | None, engine: str
) -> bool:
    """Re-ranks a run as `rescore` does, on the Ray cluster `engine`, and returns whether no part has failed.

    A part that fails is reported at the end and does not stop the others; the same command scores it again. Raises
    UserError as `rescore` and `work_on_ray` do.
    """
    manifest, tag = manifest_of(out), tag_of(out)
    if manifest is None:
        raise UserError(f"--on {engine}: the parts need a folder that all nodes share; expected --out FILE")
    expect_engine(engine)
    check_scoring(config, run, collection or None)
    accelerator = open_accelerator(device="cpu")  # this process scores nothing
    expect_one_process(accelerator, f"--on {engine}:")
    scoring = open_scoring(config, checkpoint, run, collection or None, accelerator)
    for line in scoring.notes:
        log.info(line)
    plan = plan_parts(scoring, out, parts_folder(out), tag, parts)
    plan.open()
    of = Run(_for_workers(config, scoring), checkpoint, run, out, scoring.config.collection.source, plan.count)
    missing = plan.missing()
    if len(missing) < plan.count:
        log.info(f"{plan.folder}: {plan.count - len(missing)} of {plan.count} parts are there already")
    failed = _score_all(plan, [Job(of, plan.plan, number) for number in missing], engine)
    for job, error in failed:
        print(f"failed: part {job.number}: {error}", file=sys.stderr)
    return not failed and join_parts(scoring, plan, manifest)


def _for_workers(config: Config, scoring: Scoring) -> Config:
    """The settings of the command, with what it has found out about the collection."""
    return replace(config, collection=scoring.config.collection)


def _score_all(plan: Parts, jobs: list[Job], engine: str) -> list[tuple[Job, str]]:
    """Scores these parts and returns those that failed, with the reason."""
    if not jobs:
        return []
    gpus = jobs[0].of.config.training.device != "cpu"
    ended = work_on_ray(engine, score_part, jobs, plan.folder, gpus=gpus)
    return failures(ended, len(jobs), "scoring", lambda job: f"part {job.number}")


def score_part(job: Job) -> None:
    """What a worker does: scores a part and writes it."""
    scoring, plan = _opened(job.of)
    if plan.plan != job.plan:
        raise UserError(f"{plan.folder}: this node sees other inputs than the command: its plan is {plan.plan}")
    score_parts(scoring, plan, tag_of(job.of.out), [job.number])


@functools.lru_cache(maxsize=1)
def _opened(of: Run) -> tuple[Scoring, Parts]:
    """The model on its device, and the plan."""
    training = of.config.training
    accelerator = open_accelerator(training.precision, training.device, tf32=training.tf32)
    scoring = open_scoring(of.config, of.checkpoint, of.run, of.collection, accelerator)
    place(scoring)
    return scoring, plan_parts(scoring, of.out, parts_folder(of.out), tag_of(of.out), of.parts)
