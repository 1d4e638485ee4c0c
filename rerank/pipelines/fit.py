"""Fits a pipeline: cross-validates its stages, selects the one that answers, and fits it on all judged queries."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np

from rerank.config import Config, validate
from rerank.data.collections import Collection, queries_to_train
from rerank.data.folds import SPLIT, make_folds
from rerank.data.trec import write_qrels, write_run
from rerank.data.types import Qrels, Run
from rerank.evaluation.measures import measure_name
from rerank.evaluation.weights import MEASURE
from rerank.experiments.collection import ENOUGH, check_judged_documents
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
from rerank.pipelines.plan import say_plan
from rerank.pipelines.portable import is_portable
from rerank.pipelines.record import EvidenceRecord, FitInputs, read_pipeline_manifest
from rerank.pipelines.selection import select
from rerank.pipelines.stages.base import BI_ENCODER, Stage, below
from rerank.pipelines.stages.dense import DenseStage
from rerank.pipelines.stages.world import World
from rerank.pipelines.times import times_of
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

FEWEST_PARTS = 3
"""Fewest parts: one tests, one validates, the rest train."""

FAR_SHARE = 0.05
"""The share of the judged queries that count as far from all documents, by their most similar document."""


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
            else, a flag of the default stages is given beside `pipeline`, or there is too little to learn from.

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
    else:
        _expect_no_flags_of_default_stages(encoder, cross_encoder, sparse_encoder, train_encoder)
    world = World.open(config)
    if train_encoder:
        check_train_encoder(encoder, len(_judged(world.collection)), world.collection.source)
    if pipeline is None:
        pipeline = default_stages(encoder, cross_encoder, world.texts.count(), sparse_encoder, train_encoder)
    stages = (pipeline if isinstance(pipeline, Pipeline) else Pipeline(pipeline)).stages
    stages = leave_out(stages, without, "--without")
    place = Path(out) if out is not None else world.folder.path / "pipeline"
    check_place(place, "--out ")
    inputs = inputs_of(stages, world, measure)
    unfinished = unfinished_folder(place)
    work = unfinished / short_hash(json.dumps(inputs, sort_keys=True))
    with locked(place.parent, f"pipeline-{place.name}"):
        is_kept = place.exists() and is_portable(place) == portable
        if is_kept and (kept := _fitted_before(place, inputs, config, stages, budget)):
            if work.exists():  # a command was killed before it could remove it
                remove_at_once(work)
            with contextlib.suppress(OSError):  # there is none, or it has the work of other inputs
                unfinished.rmdir()
            return Pipeline.of(kept)
        fitted, evidence = _fit(stages, world, measure, budget, work, engine)
        fitted = replace(fitted, inputs=inputs, folder=place)
        save_fitted(fitted, place, evidence, work / RUNS, portable)
        saved = {name: settings.open(fitted.world, place / STAGES / name) for name, settings in fitted.stages.items()}
        fitted = replace(fitted, rankers=saved)  # those of the fit keep their models in its folder
        remove_at_once(unfinished)
    return Pipeline.of(fitted)


def _expect_no_flags_of_default_stages(
    encoder: str, cross_encoder: str, sparse_encoder: str, train_encoder: bool
) -> None:
    """Raises UserError for a flag that only chooses default stages."""
    given = {
        "--encoder": ("dense", encoder != BI_ENCODER),
        "--cross-encoder": ("cross-encoder", cross_encoder),
        "--sparse-encoder": ("sparse", sparse_encoder),
        "--train-encoder": ("trained-encoder", train_encoder),
    }
    for flag, (kind, is_given) in given.items():
        if is_given:
            raise UserError(f"{flag}: has no effect with --pipeline; name a stage of the kind {kind} there")


def _fitted_before(
    place: Path, inputs: FitInputs, config: Config, stages: Mapping[str, Stage], budget: float | None
) -> Fitted | None:
    """The pipeline of a folder, with the answer that the budget chooses.

    None if the pipeline was fitted on other inputs, is damaged, or lacks the stage that the budget chooses.
    """
    settings = config.training
    try:
        before = dict(read_pipeline_manifest(place)["pipeline"]["inputs"] or {})
        if others := [name for name, value in inputs.items() if before.get(name) != value]:
            log.info(f"fitting again: {place}: was fitted on other inputs ({', '.join(others)})")
            return None
        kept = load_fitted(place, settings.device, settings.precision)
    except UserError as error:
        log.info(f"fitting again: {error}")
        return None
    log.info(f"{place}: is already fitted on these judgments and documents")
    answer = choose_again(place, stages, budget)
    if answer is None:
        log.info(f"{place}: lacks the stage that this budget chooses: it is fitted again")
        return None
    return kept if answer == kept.answer else load_fitted(place, settings.device, settings.precision)


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
    if len(judged) < ENOUGH and any(one.kind == "cross-encoder" and one.learns != "nothing" for one in stages.values()):
        log.info(
            f"{len(judged)} judged queries train the cross-encoder: on NFCorpus a plain encoder needed {ENOUGH:,} to "
            "be ahead of BM25; the stage answers only if it is ahead of the others"
        )
    queries = {query_id: collection.queries[query_id] for query_ids in parts.values() for query_id in query_ids}
    fitting = CrossFitting(stages, world.knowing(queries), parts, queries, work)
    fits = fitting.fits(tested)
    say_plan(fitting, fits)
    fitting.fit_all(fits, engine)
    ms = times_of(fitting, tested)
    selected = select(fitting, tested, within(budget, stages, ms), measure)
    runs = {name: fitting.runs(name, [(part, frozenset({part})) for part in tested]) for name in selected.values}
    qrels = {query_id: collection.qrels[query_id] for part in tested for query_id in parts[part]}
    _write_runs(runs, qrels, work / RUNS)
    near = _near({name: run for name, run in runs.items() if isinstance(stages[name], DenseStage)})
    rankers = {name: fitting.ranker(name) for name in prefix(stages, selected.answer)}
    pipeline = Fitted({name: stages[name] for name in rankers}, fitting.world, rankers, ms=ms, near=near)
    trial = Trial(
        measure,
        len(judged),
        len(tested),
        drawn=not collection.folds,
        far=_far(fitting, tested) if tested else (),
        taught={name: round(fmean(fitting.taught(name, part) for part in tested)) for name in selected.values},
        budget=budget,
    )
    return pipeline, evidence_of(every, selected, trial, ms)


def _write_runs(runs: Mapping[str, Run], qrels: Qrels, folder: Path) -> None:
    """Writes the run of each stage and the judgments, which `rerank eval` finds beside the runs."""
    for name, run in runs.items():
        if any(run.values()):
            write_run(run, folder / f"{name}.run", name)
    if qrels:
        write_qrels(qrels, CollectionFolder(folder).qrels)


def _far(fitting: CrossFitting, tested: Sequence[str]) -> frozenset[str]:
    """The tested queries whose words are least like those of the other parts' queries."""
    language = fitting.world.config.collection.language
    words = {q: [word.term for word in find_words(text, language)] for q, text in fitting.queries.items()}
    return far_queries(fitting.parts, tested, words)


def _near(runs: Mapping[str, Run]) -> dict[str, float]:
    """Name of a stage -> the similarity that the best documents of all but FAR_SHARE of the queries reach."""
    best = {name: [max(scores.values()) for scores in run.values() if scores] for name, run in runs.items()}
    return {name: float(np.quantile(values, FAR_SHARE)) for name, values in best.items() if values}


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
        raise UserError(
            f"{world.collection.source}: has fewer than {FEWEST} judged queries, and every stage learns from them; "
            "judge more, or take a stage that learns nothing, such as bm25"
        )
    return usable


def _parts(collection: Collection, judged: list[str]) -> tuple[Parts, list[str]]:
    """The parts of the judged queries, and the names of the tested parts: all, or only that of the published split.

    Raises UserError for a published split with too few queries to learn from.
    """
    if [fold.name for fold in collection.folds] == [SPLIT]:
        (split,) = collection.folds
        pool = [query_id for query_id in (*split.train, *split.valid) if collection.qrels.get(query_id)]
        if len(pool) < FEWEST_PARTS:
            raise UserError(
                f"{collection.source}: its published split has {len(pool)} judged training and validation queries, "
                f"expected {FEWEST_PARTS} or more to learn from; without them, the judged queries are cut into parts"
            )
        return {"test": split.test} | _cut(pool, FOLDS - 1), ["test"]
    known = set(judged)
    every = {fold.name: tuple(q for q in fold.test if q in known) for fold in collection.folds}
    own = {name: query_ids for name, query_ids in every.items() if query_ids}
    if empty := [name for name in every if name not in own]:
        log.info(f"{collection.source}: fold {', '.join(empty)}: has no judged test query: left out")
    if len(own) < 2:  # no fold to learn from while another is tested
        own = _cut(judged, FOLDS)
    return own, list(own)


def _cut(query_ids: list[str], most: int) -> dict[str, tuple[str, ...]]:
    return {fold.name: fold.test for fold in make_folds(query_ids, max(FEWEST_PARTS, min(most, len(query_ids) // 2)))}
