"""Fits a pipeline: cross-validates its stages, selects the one that answers, and fits it on all judged queries."""

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

import numpy as np

from rerank.config import Config, validate
from rerank.data.collections import Collection, queries_to_train
from rerank.data.folds import SPLIT, make_folds
from rerank.data.trec import write_qrels, write_run
from rerank.data.types import Run
from rerank.evaluation.measures import measure_name
from rerank.evaluation.weights import MEASURE
from rerank.experiments.collection import check_judged_documents
from rerank.experiments.grades import check_grades
from rerank.experiments.runs.layout import CollectionFolder
from rerank.pipelines.budget import choose_again, within
from rerank.pipelines.crossfit import FEWEST, CrossFitting, Parts
from rerank.pipelines.defaults import check_encoder, check_train_encoder, default_stages
from rerank.pipelines.evidence import Trial, evidence_of
from rerank.pipelines.far import far_queries
from rerank.pipelines.fitted import Fitted
from rerank.pipelines.folder import RUNS, STAGES, check_place, load_fitted, save_fitted
from rerank.pipelines.graph import prefix
from rerank.pipelines.graph import without as leave_out
from rerank.pipelines.inputs import inputs_of
from rerank.pipelines.pipeline import Pipeline
from rerank.pipelines.portable import is_portable
from rerank.pipelines.record import EvidenceRecord, FitInputs
from rerank.pipelines.selection import select
from rerank.pipelines.stages.base import BI_ENCODER, Ranker, Stage, below
from rerank.pipelines.stages.dense import DenseStage
from rerank.pipelines.stages.world import World
from rerank.retrieval.words import find_words
from rerank.utils.cluster import LOCAL, expect_engine
from rerank.utils.errors import UserError
from rerank.utils.files import remove_at_once, short_hash
from rerank.utils.integrity import unfinished_folder
from rerank.utils.locks import locked
from rerank.utils.progress import log
from rerank.utils.texts import check_path

FOLDS = 5
"""Parts that the judged queries are cut into."""

TIMED = 20
"""Queries that are timed."""

FAR_SHARE = 0.05
"""The share of the collection's own queries that count as far from all documents, by their most similar document."""


def fit(
    collection: str | Config,
    pipeline: Pipeline | Mapping[str, Stage] | None = None,
    *,
    encoder: str = BI_ENCODER,
    cross_encoder: str = "",
    sparse_encoder: str = "",
    train_encoder: bool = False,
    out: str | Path | None = None,
    measure: str = MEASURE,
    portable: bool = False,
    budget: float | None = None,
    engine: str = LOCAL,
    without: Sequence[str] = (),
) -> Pipeline:
    """Fits a pipeline on a collection and writes it to a folder, which can search, score and serve.

    Every stage is cross-validated. The last stage answers unless another one is clearly ahead of it. This stage and
    the stages that it needs are then fitted on all judged queries. Without judgments, only the stages that learn
    nothing are used, with equal weights in a fusion. An interrupted call resumes; if the folder was fitted on the same
    inputs, it is opened.

    Args:
        collection: an ir_datasets id, or a folder in BEIR's layout; or the settings of an experiment. The settings of
            the collection, the index, the device, the precision, the seed and the output folder are used.
        pipeline: the stages to try, such as `BM25Stage() >> CrossEncoderStage()`; by default those of `default_stages`.
        encoder: the bi-encoder of the default stages, or "none" for BM25 and neighbours only.
        cross_encoder: a model that re-ranks in the default stages.
        sparse_encoder: a sparse encoder, such as SPLADE, that retrieves in the default stages.
        train_encoder: whether the default stages also fine-tune the bi-encoder on the judgments.
        out: the folder to write; by default runs/<collection>/pipeline.
        measure: the measure that stages are compared by, such as nDCG@20.
        portable: whether the index, the vectors, the documents and the encoders are copied into the folder.
        budget: milliseconds of a query; slower stages are not selected. None: no limit.
        engine: where cross-encoders and trained encoders are fitted: "local", "ray" or "ray://HOST:10001".
        without: names of stages that are left out, such as ("similar", "adapter").

    Raises:
        UserError: the collection or a model cannot be opened, the stages are no pipeline, `out` holds something
            else, or there is nothing to train an encoder on.

    The example takes half a minute, so the doctests leave it out:

    >>> pipeline = fit("my-collection", encoder="none", out="my-pipeline")  # doctest: +SKIP
    >>> [hit.doc_id for hit in pipeline.search("wing flutter", top=3)]  # doctest: +SKIP
    >>> print(pipeline.evidence)  # doctest: +SKIP
    """
    config = Config(collection) if isinstance(collection, str) else collection
    validate(config)
    if out is not None:
        check_path("out", out)
    measure = measure_name(measure)
    expect_engine(engine)
    if pipeline is None:
        check_encoder(encoder)
    world = World.open(config)
    if train_encoder and pipeline is not None:
        raise UserError(
            "--train-encoder: has no effect with --pipeline; name a stage of the kind trained-encoder there"
        )
    if train_encoder:
        check_train_encoder(encoder, len(_judged(world.collection)), world.collection.source)
    tried = pipeline
    if tried is None:
        tried = default_stages(encoder, cross_encoder, world.texts.count(), sparse_encoder, train_encoder)
    stages = (tried if isinstance(tried, Pipeline) else Pipeline(tried)).stages
    stages = leave_out(stages, without, "--without")
    place = Path(out) if out is not None else world.folder.path / "pipeline"
    check_place(place, "--out ")
    inputs = inputs_of(stages, world, measure)
    unfinished = unfinished_folder(place)
    work = unfinished / short_hash(json.dumps(inputs, sort_keys=True))
    with locked(place.parent, f"pipeline-{place.name}"):
        if place.exists() and is_portable(place) == portable and (kept := _same(place, inputs, config)):
            log.info(f"{place}: is already fitted on these judgments and documents")
            answer = choose_again(place, stages, budget)
            if work.exists():  # a command was killed before it could remove it
                remove_at_once(work)
            with contextlib.suppress(OSError):  # there is none, or it has the work of other inputs
                unfinished.rmdir()
            if answer == kept.answer:
                return Pipeline.of(kept)
            if answer:
                return Pipeline.load(place, config.training.device, config.training.precision)
            log.info(f"{place}: lacks the stage that this budget chooses: it is fitted again")
        fitted, evidence = _fit(stages, world, measure, budget, work, engine)
        fitted = replace(fitted, inputs=inputs, folder=place)
        save_fitted(fitted, place, evidence, work / RUNS, portable)
        saved = {name: settings.open(fitted.world, place / STAGES / name) for name, settings in fitted.stages.items()}
        fitted = replace(fitted, rankers=saved)  # those of the fit keep their models in its folder
        remove_at_once(unfinished)
    return Pipeline.of(fitted)


def _same(place: Path, inputs: FitInputs, config: Config) -> Fitted | None:
    """The pipeline of a folder; None if it was fitted on other inputs or is damaged."""
    try:
        fitted = load_fitted(place, config.training.device, config.training.precision)
    except UserError as error:
        log.info(f"fitting again: {error}")
        return None
    return fitted if fitted.inputs == inputs else None


def _fit(
    every: Mapping[str, Stage], world: World, measure: str, budget: float | None, work: Path, engine: str
) -> tuple[Fitted, EvidenceRecord]:
    """Fits and selects; returns the fitted stages up to the one that answers, and the evidence of all stages."""
    collection = world.collection
    if line := check_judged_documents(world.texts):
        log.info(line)
    judged = _judged(collection)
    if len(judged) >= FEWEST:
        stages, (parts, tested) = every, _parts(collection, judged)
    else:
        log.info(f"{len(judged)} judged queries: too few to learn from; stages that must learn are left out")
        stages, parts, tested = _unlearned(every, world), {}, []
    for settings in stages.values():
        if settings.learns != "nothing" and hasattr(settings, "loss"):
            check_grades(settings.loss, collection)
    queries = {query_id: collection.queries[query_id] for query_ids in parts.values() for query_id in query_ids}
    fitting = CrossFitting(stages, world.knowing(queries), parts, queries, work)
    fitting.fit_all(tested, engine)
    for name in stages if tested else ():  # once before it is timed: an encoder embeds the documents that it ranks
        fitting.run(name, tested[0], frozenset(tested[:1]))
    rankers = {name: fitting.ranker(name, frozenset(tested[:1])) for name in stages}
    timed = {query_id: queries[query_id] for part in tested[:1] for query_id in parts[part]} or collection.queries
    ms = _times(Fitted(stages, fitting.world, rankers), timed)
    selected = select(fitting, tested, within(budget, stages, ms), measure)
    near: dict[str, float] = {}
    for name in selected.values:
        run = fitting.runs(name, [(part, frozenset({part})) for part in tested])
        best = [max(scores.values()) for scores in run.values() if scores]
        if best and isinstance(stages[name], DenseStage):
            near[name] = float(np.quantile(best, FAR_SHARE))
        if any(run.values()):
            write_run(run, work / RUNS / f"{name}.run", name)
    if tested:  # `rerank eval` finds the judgments beside the runs
        tests = [query_id for part in tested for query_id in parts[part]]
        write_qrels({q: collection.qrels[q] for q in tests}, work / RUNS / CollectionFolder(Path()).qrels.name)
    kept = prefix(stages, selected.answer)
    pipeline = Fitted(kept, fitting.world, {name: fitting.ranker(name) for name in kept}, ms=ms, near=near)
    language = world.config.collection.language
    words = {query_id: [word.term for word in find_words(text, language)] for query_id, text in queries.items()}
    trial = Trial(
        measure,
        len(judged),
        len(tested),
        drawn=not collection.folds,
        far=far_queries(parts, tested, words) if tested else (),
        taught={name: round(fmean(fitting.taught(name, part) for part in tested)) for name in selected.values},
        budget=budget,
    )
    return pipeline, evidence_of(every, selected, trial, ms)


def _judged(collection: Collection) -> list[str]:
    """The queries to learn from that have judgments."""
    return [query_id for query_id in queries_to_train(collection) if collection.qrels.get(query_id)]


def _unlearned(stages: Mapping[str, Stage], world: World) -> dict[str, Stage]:
    """The stages that can rank without judgments; raises UserError if there is none."""
    usable: dict[str, Stage] = {}
    for name, settings in stages.items():
        without: Stage = settings.unlearned() if hasattr(settings, "unlearned") else settings
        if without.learns == "nothing" and all(lower in usable for lower in below(settings)):
            usable[name] = without
    if not usable:
        raise UserError(f"{world.collection.source}: has too few judged queries, and every stage learns from them")
    return usable


def _parts(collection: Collection, judged: list[str]) -> tuple[Parts, list[str]]:
    """The parts of the judged queries, and the names of the tested parts: all, or only that of the published split."""
    if [fold.name for fold in collection.folds] == [SPLIT]:
        (split,) = collection.folds
        pool = [query_id for query_id in (*split.train, *split.valid) if collection.qrels.get(query_id)]
        return {"test": split.test} | _cut(pool, FOLDS - 1), ["test"]
    known = set(judged)
    own = {fold.name: tuple(q for q in fold.test if q in known) for fold in collection.folds} or _cut(judged, FOLDS)
    return own, list(own)


def _cut(query_ids: list[str], most: int) -> dict[str, tuple[str, ...]]:
    return {fold.name: fold.test for fold in make_folds(query_ids, max(3, min(most, len(query_ids) // 2)))}


def _times(pipeline: Fitted, queries: Mapping[str, str]) -> dict[str, float]:
    """The milliseconds of each stage for a query: the median over TIMED queries, asked one by one.

    It is the processor's time of all threads, so that other programs do not count.
    """
    rows: list[list[float]] = []

    def timed(ranker: Ranker, queries: Mapping[str, str], runs: Sequence[Run]) -> Run:
        start = time.process_time()
        run = ranker.rank(queries, runs)
        rows[-1].append(1000 * (time.process_time() - start))
        return run

    for query_id, text in list(queries.items())[:TIMED]:
        rows.append([])
        pipeline.rank_all({query_id: f"{text} "}, timed)  # the space avoids the cached vector of the query
    return {name: median(column) for name, column in zip(pipeline.stages, zip(*rows, strict=True), strict=False)}
