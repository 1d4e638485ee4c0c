"""The first stage of an experiment that fuses several runs (`--first-stage.run a.run b.run`).

The fused run, and a record of what it was made from, are in the folder of the collection. Where weights are tuned, the
run has each query with the weights of the fold that tests it, and `fold_first_stage` gives a fold's training all
queries with the weights of that fold: no test query of a fold is used for what its model sees.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from rerank.config import Config
from rerank.data.collections import Collection
from rerank.data.folds import FINAL
from rerank.data.trec import read_run, write_run
from rerank.data.types import Fold, Qrels, Run
from rerank.evaluation.fusion import (
    MEASURE,
    RRF_K,
    Weights,
    check_runs,
    check_weights,
    fuse_ranks,
    fuse_scores,
    queries_of,
    tune_by_fold,
    tune_on,
    weights_of_queries,
)
from rerank.runs.layout import CollectionFolder
from rerank.runs.manifest import judgments_hash
from rerank.tasks.folds import folds_of
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.integrity import as_record, changes, facts_of
from rerank.utils.json_files import read_json
from rerank.utils.kept_hashes import kept_hash
from rerank.utils.locks import make_once
from rerank.utils.progress import log


class Source(TypedDict):
    """A run that is fused, and its hash."""

    run: str
    sha256: str


class Origin(TypedDict):
    """Everything that the fused run depends on; `folds` and `judgments` are hashes."""

    method: str
    runs: list[Source]
    k: NotRequired[float]
    measure: NotRequired[str]
    folds: NotRequired[str]
    judgments: NotRequired[str]


class Record(TypedDict):
    """How a fused run was made: its origin, the weights of each fold, if there are any, and its size and hash."""

    origin: Origin
    weights: dict[str, list[float]]
    run: dict[str, Any]


def fused_first_stage(config: Config, collection: Collection, folder: CollectionFolder) -> Path:
    """The fused run, made unless `folder` has it.

    Raises UserError if a run is missing or malformed, the runs have no query in common, there is nothing to tune on, or
    the fused run was made from other files, judgments or folds, or has changed since.
    """
    settings = config.first_stage
    file = folder.first_stage(settings)
    origin = _origin(config, collection)

    def make() -> None:
        runs = _read(settings.runs)
        by_fold: dict[str, Weights] = {}
        if settings.fusion == "interpolate":
            folds = folds_of(collection, config.collection.folds)
            by_fold = tune_by_fold(runs, collection.qrels, folds, MEASURE)
            queries = queries_of(list(runs.values()))
            fused = fuse_scores(list(runs.values()), weights_of_queries(queries, folds, by_fold))
        else:
            fused = fuse_ranks(list(runs.values()))
        with atomic_write(file) as tmp:
            write_run(tmp, fused, file.stem)
            record = {"origin": origin, "weights": by_fold, "run": {file.name: facts_of(tmp)}}
            with atomic_write(_record_file(file)) as tmp_record:
                tmp_record.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
        log.info(f"first stage: {len(settings.runs)} runs fused, {len(fused)} queries: {file}")

    make_once(file, "ranking", make)
    _check(file, origin)
    return file


def fold_first_stage(
    config: Config, first_stage: Path, collection: Collection, fold: Fold
) -> tuple[Run | None, dict[str, Any]]:
    """The fused run with the weights of a fold, and what the fold's manifest says of the fusion.

    The run is None if it is the same in all folds: that of `first_stage`. The weights of the final model, which has no
    test queries, are tuned on its validation queries, or on all if there are none.
    """
    settings = config.first_stage
    if len(settings.runs) < 2:
        return None, {}
    record = _read_record(first_stage)
    facts: dict[str, Any] = {"method": settings.fusion, "runs": record["origin"]["runs"]}
    if settings.fusion == "rrf":
        return None, {"fusion": facts | {"k": RRF_K}}
    runs = _read(settings.runs)
    if fold.name == FINAL:
        judged: Qrels = {q: collection.qrels[q] for q in fold.valid or fold.train if q in collection.qrels}
        weights = tune_on(runs, judged, MEASURE, f"validation queries of {FINAL}")
    else:
        weights = _recorded_weights(record, fold, first_stage, len(runs))
    facts |= {"measure": MEASURE, "weights": list(weights)}
    return fuse_scores(list(runs.values()), weights), {"fusion": facts}


def _recorded_weights(record: Record, fold: Fold, first_stage: Path, runs: int) -> Weights:
    weights = record["weights"].get(fold.name, [])
    try:
        check_weights(weights, runs)
    except ValueError as error:
        file = _record_file(first_stage)
        raise UserError(f"{file}: fold {fold.name}: {error}; remove it and {first_stage.name} to fuse again") from error
    return tuple(weights)


def _read(files: Sequence[str]) -> dict[str, Run]:
    runs = {file: read_run(file) for file in files}
    check_runs(runs)
    return runs


def _origin(config: Config, collection: Collection) -> Origin:
    settings = config.first_stage
    sources = [Source(run=run, sha256=kept_hash(Path(run))) for run in settings.runs]
    if settings.fusion == "rrf":
        return {"method": "rrf", "k": RRF_K, "runs": sources}
    collection.expect_judgments()
    folds = folds_of(collection, config.collection.folds)
    valid = {q: collection.qrels[q] for fold in folds for q in fold.valid if q in collection.qrels}
    return {
        "method": settings.fusion,
        "runs": sources,
        "measure": MEASURE,
        "folds": short_hash(json.dumps([asdict(fold) for fold in folds])),
        "judgments": judgments_hash(valid),
    }


def _check(file: Path, expected: Origin) -> None:
    """Raises UserError if the fused run was made from something else than `expected`, or has changed since."""
    again = f"remove {file} and {_record_file(file).name} to fuse again, or take another --output.folder"
    record = _read_record(file)
    origin = record["origin"]
    hashes = {source["run"]: source["sha256"] for source in origin["runs"]}
    changed = [one["run"] for one in expected["runs"] if hashes.get(one["run"]) != one["sha256"]]
    if changed:
        raise UserError(f"{', '.join(changed)}: changed since the runs were fused into {file}; {again}")
    if origin != expected:
        names = [name for name in {**origin, **expected} if origin.get(name) != expected.get(name)]
        raise UserError(f"{file}: fused with other {', '.join(names)} than those of now; {again}")
    if different := list(changes(file.parent, record["run"])):
        raise UserError(f"{file.parent}: changed since it was fused: {different[0]}; {again}")


def _read_record(file: Path) -> Record:
    remedy = f"remove it and {file.name} to fuse again"
    record: Record = read_json(_record_file(file), Record, remedy)
    try:
        as_record(record["run"])
    except ValueError as error:
        raise UserError(f"{_record_file(file)}: {error}; {remedy}") from error
    return record


def _record_file(file: Path) -> Path:
    return file.with_suffix(".json")
