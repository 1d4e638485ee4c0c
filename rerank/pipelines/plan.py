"""What a fit will do, and about how long it takes: measured for some seconds before the first stage."""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rerank.data.types import Fold, Run
from rerank.evaluation.weights import tune_weights
from rerank.pipelines.crossfit import INNER_DEPTH, CrossFitting, Fit
from rerank.pipelines.stages.cross_encoder import CrossEncoderStage
from rerank.pipelines.stages.world import World
from rerank.utils.progress import SECONDS_SAID, duration, log, quiet, timed_sample
from rerank.utils.texts import counted

MEASURED = 8
"""Queries of a split whose documents are measured, at most."""

TUNED = 20
"""Queries on which a tuning of weights is timed."""

TUNINGS = 3
"""A small fit takes about as long as so many tunings of two weights on all judged queries."""

STEPS = 600
"""One that trains a small model takes as long as one tuning on so many queries more, as its steps are fixed.

Both constants are from fits of Time (83 queries) and Cranfield (225), whose estimates they bring within a third.
"""


def say_plan(fitting: CrossFitting, fits: Sequence[Fit]) -> None:
    """Logs the number of stages, parts and fits, and about how long they take: in all, and by stage.

    What an earlier command has fitted is not counted. Nothing is measured if nothing is logged.
    """
    if not log.isEnabledFor(logging.INFO):
        return
    what = f"{counted(len(fitting.stages), 'stage')}, {counted(len(fitting.parts), 'part')}"
    what += f": {counted(len(fits), 'fit')}"
    missing = fitting.missing(fits)
    if len(missing) < len(fits):
        what += f", {len(missing)} of them to make"
    log.info(what)
    if not missing:
        return
    with quiet(log.name, level=logging.WARNING):
        seconds = seconds_of(fitting, missing)
    total = sum(seconds.values())
    if total >= SECONDS_SAID:
        long = [f"{name} {duration(each)}" for name, each in seconds.items() if each >= SECONDS_SAID]
        by_stage = f": {', '.join(long)}" if long else ""
        stages = [fitting.stages[name] for name in seconds]
        may_stop = any(isinstance(settings, CrossEncoderStage) and settings.trained for settings in stages)
        log.info(f"about {duration(total)}{by_stage}{'; less if a training stops early' if may_stop else ''}")


def seconds_of(fitting: CrossFitting, fits: Sequence[Fit]) -> dict[str, float]:
    """Name of a stage -> about the seconds of its fits, and of what it makes once for all of them."""
    seconds, world = dict[str, float](), fitting.world
    a_query = seconds_to_tune()
    for name, of_stage in itertools.groupby(fits, key=lambda fit: fit[0]):
        settings, withouts = fitting.stages[name], [without for _, without in of_stage]
        seconds[name] = settings.seconds_to_prepare(world) if hasattr(settings, "seconds_to_prepare") else 0.0
        if hasattr(settings, "seconds_to_fit"):
            fold, below = _example(fitting, name, withouts[0])
            seconds[name] += len(withouts) * settings.seconds_to_fit(world, fold, below)
        elif fitting.learns(name):
            steps = STEPS if hasattr(settings, "training") else 0
            seconds[name] += len(withouts) * a_query * (TUNINGS * len(fitting.queries) + steps)
    return seconds


def _example(fitting: CrossFitting, name: str, without: frozenset[str]) -> tuple[Fold, Run]:
    """The fold of a fit, with the queries that it will rank as test queries, and a stand-in for the stage below."""
    fold, _ = fitting.lessons(name, without)
    held_out = [query_id for part in fitting.parts if part in without for query_id in fitting.parts[part]]
    splits = (fold.train, fold.valid) if fold.train else (tuple(fitting.queries),)
    below = {q: scores for split in splits for q, scores in judged_run(fitting.world, split).items()}
    return replace(fold, test=tuple(held_out or fitting.queries)), below


def judged_run(world: World, query_ids: Sequence[str]) -> Run:
    """Some of the queries that have a relevant document, and for each its judged documents and others.

    It stands for a ranking that is not made yet.
    """
    others = [document.doc_id for document in itertools.islice(world.texts.documents(), INNER_DEPTH)]
    judged = {query_id: world.collection.qrels.get(query_id, {}) for query_id in query_ids}
    chosen = [query_id for query_id, grades in judged.items() if any(grade > 0 for grade in grades.values())]
    run: Run = {}
    for query_id in chosen[:MEASURED]:
        known = world.texts.known(judged[query_id])
        run[query_id] = {doc_id: -float(rank) for rank, doc_id in enumerate(dict.fromkeys([*known, *others]))}
    return run


def seconds_to_tune() -> float:
    """The seconds that tuning the weights of two runs takes for each query, measured with random scores."""
    rng = np.random.default_rng(0)
    query_ids, doc_ids = [f"q{number}" for number in range(TUNED)], [f"d{number}" for number in range(INNER_DEPTH)]
    runs = [{q: dict(zip(doc_ids, rng.random(INNER_DEPTH).tolist(), strict=True)) for q in query_ids} for _ in range(2)]
    qrels = {query_id: dict.fromkeys(doc_ids[::10], 1) for query_id in query_ids}
    return timed_sample(lambda number: tune_weights(runs, qrels), range(4)) / TUNED
