"""What a pipeline was fitted on: settings and hashes of all that a fit reads, and what has changed since."""

from collections.abc import Iterator, Mapping
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
        "versions": {name: settings.version for name, settings in stages.items() if hasattr(settings, "version")},
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


def changed_inputs(fitted: Fitted) -> Iterator[str]:
    """A line for each input of a fit that has changed since; what is not on this machine is not compared.

    The documents and the models of the stages are compared when the folder is opened. A portable folder has its own
    copy of the rest, which its manifest checks.
    """
    from rerank.models.hub import bi_encoder_hash  # loads torch

    inputs, world = fitted.inputs, fitted.world
    if not inputs or is_portable(fitted.folder):
        return
    for name, now in _of_collection(world).items():
        if now != inputs["collection"][name] and not (name == "index_commits" and not now):
            yield f"{name.replace('_', ' ')}: changed since the fit"
    for file, recorded in inputs["files"].items():
        if Path(file).is_file() and kept_hash(Path(file)) != recorded:
            yield f"{file}: changed since the fit"
    for name, recorded in inputs["encoders"].items():
        if name not in world.places and Path(name).is_dir() and bi_encoder_hash(name) != recorded:
            yield f"encoder {name}: changed since the fit"
