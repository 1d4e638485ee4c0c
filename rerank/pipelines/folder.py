"""The folder of a fitted pipeline: its stages and their learned files, the evidence, and a manifest with hashes."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from rerank.config import CollectionSettings, Config, FirstStageSettings, OutputSettings, TrainingSettings
from rerank.config.files import check_file
from rerank.config.settings import Precision
from rerank.data.collections import with_copied_documents
from rerank.experiments.collection import collection_of
from rerank.experiments.runs.layout import MANIFEST, CollectionFolder
from rerank.experiments.runs.manifest import write_manifest
from rerank.pipelines.fitted import Fitted
from rerank.pipelines.graph import as_toml, prefix, read_pipeline
from rerank.pipelines.inputs import model_hashes
from rerank.pipelines.portable import CORPUS, DOCUMENTS, check_places, copy_world, is_portable, kept_collection
from rerank.pipelines.record import (
    EVIDENCE,
    EvidenceRecord,
    PipelineFacts,
    PipelineManifest,
    read_evidence,
    read_pipeline_manifest,
)
from rerank.pipelines.stages.world import World
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, remove_leftovers, short_hash, user_cache
from rerank.utils.inside import copy_files
from rerank.utils.integrity import changes, files_below, record_of
from rerank.utils.locks import locked
from rerank.utils.progress import log

PIPELINE = "pipeline.toml"
"""The stages and their settings."""

STAGES = "stages"
"""The folder with the learned files of each stage."""

RUNS = "runs"
"""The folder with the out-of-fold run of each stage."""

RECORDED = ("index", "embeddings")
"""The folders of a portable pipeline whose files have records of their own."""

ARTIFACT = "pt_meta.json"
"""The description that PyTerrier reads."""

NO_PIPELINE = f"{{}}: is no fitted pipeline: has no {PIPELINE}; `rerank fit` makes one"


def is_pipeline(folder: Path) -> bool:
    """Whether a folder has a fitted pipeline; first restores a folder that a killed process moved away."""
    if not folder.exists():
        remove_leftovers(folder.parent)
    return (folder / PIPELINE).is_file()


def check_place(folder: Path, flag: str = "") -> None:
    """Raises UserError if a folder holds anything but a fitted pipeline, as writing would replace it."""
    if folder.exists() and not is_pipeline(folder):
        raise UserError(f"{flag}{folder}: exists and is no pipeline; expected a new folder, or one to fit again")


def save_fitted(
    pipeline: Fitted,
    folder: Path,
    evidence: EvidenceRecord | None = None,
    runs: Path | None = None,
    portable: bool = False,
) -> None:
    """Writes a fitted pipeline and replaces the folder; a `portable` one gets everything that another machine needs."""
    world, rankers = pipeline.world, pipeline.rankers
    with atomic_write(folder) as tmp:
        for name, ranker in rankers.items():
            (tmp / STAGES / name).mkdir(parents=True)
            ranker.save(tmp / STAGES / name)
        (tmp / PIPELINE).write_text(as_toml(pipeline.stages), encoding="utf-8")
        if evidence is not None:
            (tmp / EVIDENCE).write_text(json.dumps(evidence, indent=1, ensure_ascii=False), encoding="utf-8")
        if runs is not None and runs.is_dir():
            copy_files(runs, tmp / RUNS, files_below(runs))
        about = {"type": "retriever", "format": "rerank_pipeline", "package_hint": "ir-rerank"}
        (tmp / ARTIFACT).write_text(json.dumps(about), encoding="utf-8")
        encoders = model_hashes(pipeline.stages, world)
        if portable:
            places = copy_world(world, pipeline.stages, rankers.values(), tmp)
        else:
            names = [*encoders, *(pipeline.inputs["files"] if pipeline.inputs else ())]
            here = {name: world.place_of(name) for name in names}
            places = {name: _beside(place, folder) for name, place in here.items() if Path(place).exists()}
        files = [file for file in files_below(tmp) if file.relative_to(tmp).parts[0] not in RECORDED]
        facts = _facts_of(pipeline, folder, encoders, places, portable)
        write_manifest(tmp / MANIFEST, {"pipeline": facts, "files": record_of(tmp, files)})


def _facts_of(
    pipeline: Fitted, folder: Path, encoders: Mapping[str, str], places: Mapping[str, str], portable: bool
) -> dict[str, object]:
    """The `PipelineFacts` of a manifest in `folder`."""
    world = pipeline.world
    settings, index = world.config.collection, world.config.first_stage.index
    paths = {name: _beside(getattr(settings, name), folder) for name in ("source", "queries")}
    return {
        "answer": pipeline.answer,
        "collection": asdict(settings) | paths,
        "index": index if index in ("auto", "own") else _beside(index, folder),
        "name": world.collection.name,
        "folder": "." if portable else os.path.relpath(world.folder.path, folder),
        "places": places,
        "documents": world.texts.fingerprint,
        "encoders": encoders,
        "inputs": pipeline.inputs,
        "near": dict(pipeline.near),
    }


def save_again(pipeline: Fitted, folder: Path, older_documents: bool = False) -> None:
    """Writes a pipeline with the evidence and the runs of the folder that it was opened from, if it has one.

    A portable pipeline stays portable. `older_documents` says that other documents were measured.
    """
    kept = pipeline.folder
    if kept == Path():
        save_fitted(pipeline, folder)
    else:
        evidence = read_evidence(kept)
        if evidence and older_documents:
            evidence["older_documents"] = True
        save_fitted(pipeline, folder, evidence, kept / RUNS, is_portable(kept))


def _beside(source: str, folder: Path) -> str:
    """The path of a file or folder relative to the pipeline's folder, so that both can move; other names unchanged.

    Relative paths begin with ./ or ../, which tells them from names.
    """
    if not source or not Path(source).exists():
        return source
    path = os.path.relpath(source, folder)
    return path if path.startswith("..") else f"./{path}"


def place_from(folder: Path, source: str) -> str:
    """The inverse of `_beside`."""
    return os.path.normpath(folder / source) if source.startswith(".") else source


def collection_settings(folder: Path, facts: PipelineFacts) -> CollectionSettings:
    """The settings of a pipeline's collection, with the paths of its source and its queries from here."""
    settings = facts["collection"]
    source, queries = place_from(folder, settings.source), place_from(folder, settings.queries)
    return replace(settings, source=source, queries=queries)


def queries_of(folder: Path, facts: PipelineFacts) -> Mapping[str, str]:
    """query_id -> text of a pipeline's collection, or of its copy in a portable folder.

    Raises UserError if the collection cannot be opened.
    """
    if is_portable(folder):
        return kept_collection(folder, facts["name"], facts["documents"]).queries
    return collection_of(collection_settings(folder, facts)).queries


def update(folder: Path) -> None:
    """Takes the present documents of the collection into a fitted pipeline; learned files and evidence stay.

    The index is built, and new and changed documents are embedded, before the folder is replaced. Raises UserError as
    `load_fitted`, and if the collection cannot be opened.
    """
    if not is_pipeline(folder):
        raise UserError(NO_PIPELINE.format(folder))
    with locked(folder.parent, f"pipeline-{folder.name}"):
        fitted = load_fitted(folder, new_documents=True)
        if fitted.world.texts.fingerprint == read_pipeline_manifest(folder)["pipeline"]["documents"]:
            log.info(f"{folder}: already has these documents")
            return
        save_again(fitted, folder, older_documents=True)


def _cache_of(folder: Path, manifest: PipelineManifest) -> CollectionFolder:
    """The folder in the user's cache for an index or vectors that a read-only pipeline lacks."""
    documents = manifest["files"].get(f"{DOCUMENTS}/{CORPUS}", "")  # a manifest may state the fingerprint of others
    return CollectionFolder(user_cache("pipelines") / short_hash(folder.resolve(), documents))


def load_fitted(
    folder: Path,
    device: str = "auto",
    precision: Precision = "auto",
    new_documents: bool = False,
    copy_to: Path | None = None,
) -> Fitted:
    """Opens the folder of a fitted pipeline; with `new_documents`, on the present documents of its collection.

    Without `new_documents`, nothing is written into the folder or where its manifest says. `copy_to` is a folder for a
    copy of the documents, from which a server reads. Raises UserError if it is no pipeline or is damaged, if an
    encoder has changed and, without `new_documents`, if the documents have changed.
    """
    if not is_pipeline(folder):
        raise UserError(NO_PIPELINE.format(folder))
    manifest = read_pipeline_manifest(folder)
    if changed := list(changes(folder, manifest["files"])):
        raise UserError(f"{folder}: changed since it was written: {changed[0]}; fit the pipeline again")
    facts, every = manifest["pipeline"], read_pipeline(folder / PIPELINE)
    if facts["answer"] not in every:
        raise UserError(f"{folder}: has no stage {facts['answer']}, which answers; fit the pipeline again")
    if is_portable(folder):
        check_places(folder, every, facts["places"])
    training = TrainingSettings(device=device, precision=precision)
    world = _open_world(folder, manifest, training, new_documents, copy_to)
    if not new_documents and world.texts.fingerprint != facts["documents"]:
        raise UserError(
            f"{folder}: the documents of {world.config.collection.source} have changed since the fit; `rerank update "
            f"{folder}` takes them in, `rerank fit` also learns from them"
        )
    now = model_hashes(every, world)
    for name in facts["encoders"]:
        if now.get(name) != facts["encoders"][name]:
            raise UserError(
                f"{folder}: the files of the encoder {name} have changed since the fit; run `rerank fit` again"
            )
    stages = prefix(every, facts["answer"])
    rankers = {name: settings.open(world, folder / STAGES / name) for name, settings in stages.items()}
    evidence = read_evidence(folder, manifest)
    ms = {row["name"]: row["own_ms"] for row in (evidence["stages"] if evidence else ()) if row["own_ms"] is not None}
    return Fitted(stages, world, rankers, facts["inputs"], folder, ms, facts["near"])


def _open_world(
    folder: Path, manifest: PipelineManifest, training: TrainingSettings, new_documents: bool, copy_to: Path | None
) -> World:
    """The collection of a fitted pipeline, or its copy in a portable folder; the arguments are as in `load_fitted`."""
    facts, portable = manifest["pipeline"], is_portable(folder)
    settings = collection_settings(folder, facts)
    if portable and not new_documents:
        collection = kept_collection(folder, facts["name"], facts["documents"])
    else:
        if settings.queries:
            check_file(f"{folder}: its queries", settings.queries)
        collection = collection_of(settings)
    if copy_to:
        collection = with_copied_documents(collection, copy_to)
    home = folder if portable else Path(os.path.normpath(folder / facts["folder"]))
    config = Config(
        collection=settings,
        first_stage=FirstStageSettings(index="own" if portable else place_from(folder, facts["index"])),
        training=training,
        output=OutputSettings(folder=str(home.parent)),
    )
    places = {name: place_from(folder, place) for name, place in facts["places"].items()}
    is_written = new_documents and home in (folder, folder.parent)
    cache = None if is_written else _cache_of(folder, manifest)
    return World(config, collection, CollectionFolder(home), places=places, cache=cache)
