"""What a pipeline was fitted on: settings and hashes of all that a fit reads, and what has changed since."""

from collections.abc import Mapping
from pathlib import Path

from rerank.data.collections import queries_to_train
from rerank.experiments.runs.manifest import judgments_hash
from rerank.pipelines.fitted import Fitted
from rerank.pipelines.portable import is_portable, models_of
from rerank.pipelines.record import FitInputs
from rerank.pipelines.stages.base import Stage
from rerank.pipelines.stages.tables import table_of
from rerank.pipelines.stages.world import World
from rerank.retrieval.lucene_index import index_identity
from rerank.utils.files import kept_hash, short_hash


def inputs_of(stages: Mapping[str, Stage], world: World, measure: str) -> FitInputs:
    """Everything that a fit depends on, as the manifest records it."""
    return {
        "stages": {name: table_of(settings) for name, settings in stages.items()},
        "documents": world.texts.fingerprint,
        "encoders": model_hashes(stages, world, also_trained=True),
        "files": {file: kept_hash(Path(file)) for file in _files(stages)},
        "language": world.config.collection.language,
        "index": world.config.first_stage.index,
        "seed": world.config.training.seed,
        "precision": world.config.training.precision,
        "measure": measure,
        "collection": _of_collection(world),
    }


def _of_collection(world: World) -> dict[str, str]:
    collection, index = world.collection, Path(world.config.first_stage.index)
    return {
        "judgments": judgments_hash(dict(collection.qrels)),
        "queries": short_hash(*queries_to_train(collection).items()),
        "folds": short_hash(*collection.folds),
        "index_commits": index_identity(index) if index.is_dir() else "",
    }


def model_hashes(stages: Mapping[str, Stage], world: World, also_trained: bool = False) -> dict[str, str]:
    """Name -> hash of the models that stages use without training; `also_trained` adds those that judgments train."""
    from rerank.models.hub import bi_encoder_hash  # loads torch

    return {name: bi_encoder_hash(world.place_of(name)) for name in models_of(stages, also_trained)}


def _files(stages: Mapping[str, Stage]) -> list[str]:
    """The files that settings name under `file`."""
    return sorted({str(file) for settings in stages.values() if (file := getattr(settings, "file", ""))})


def compare_inputs(fitted: Fitted) -> tuple[list[str], list[str]]:
    """A line for each input of a fit that has changed since, and for each that is not on this machine any more.

    The documents and the models of the stages are compared when the folder is opened. Of a portable folder, the
    manifest checks the copies of documents, queries and judgments.
    """
    from rerank.models.hub import bi_encoder_hash, local_folder  # loads torch

    inputs, world = fitted.inputs, fitted.world
    if not inputs:
        return [], []
    found: list[tuple[str, str, str | None]] = []  # what, its recorded hash, and that of now; None: not here
    if not is_portable(fitted.folder):
        then, own = inputs["collection"], _of_collection(world)
        found += [(name, then[name], own[name]) for name in ("judgments", "queries", "folds")]
        if then["index_commits"]:
            found.append((f"index {inputs['index']}", then["index_commits"], own["index_commits"] or None))
    for name, recorded in inputs["files"].items():
        file = Path(world.place_of(name))
        found.append((str(file), recorded, kept_hash(file) if file.is_file() else None))
    for name, recorded in inputs["encoders"].items():
        if name not in world.places:
            found.append((f"encoder {name}", recorded, bi_encoder_hash(name) if local_folder(name) else None))
    changed = [f"{what}: changed since the fit" for what, recorded, now in found if now not in (None, recorded)]
    return changed, [f"{what}: is not on this machine: not compared" for what, _, now in found if now is None]
