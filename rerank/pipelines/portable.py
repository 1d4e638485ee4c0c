"""Portable pipelines: the folder has the collection, its index and vectors, and the encoders, for another machine."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerank.data.collections import Collection, Source, open_source
from rerank.data.collections.beir import CORPUS, QRELS
from rerank.pipelines.stages import BM25Stage, CrossEncoderStage, TrainedEncoderStage
from rerank.pipelines.stages.base import Ranker, Stage
from rerank.pipelines.stages.trained_encoder import TrainedEncoderRanker
from rerank.pipelines.stages.world import World
from rerank.utils.errors import UserError
from rerank.utils.files import short_hash
from rerank.utils.inside import copy_files, inside
from rerank.utils.integrity import files_below
from rerank.utils.progress import progress

DOCUMENTS = "documents"
"""The folder with the copied collection, in BEIR's layout."""

ENCODERS = "encoders"
"""The folder with the copied models."""


def models_of(stages: Mapping[str, Stage], also_trained: bool = False) -> list[str]:
    """The models that stages use without training; `also_trained` adds the models that judgments train."""
    found = set()
    for settings in stages.values():
        model = getattr(settings, "encoder", None)
        is_taught = isinstance(settings, CrossEncoderStage | TrainedEncoderStage) and settings.learns != "nothing"
        if model and (also_trained or not is_taught):
            found.add(model if isinstance(model, str) else model.name)
    return sorted(found)


def copy_world(world: World, stages: Mapping[str, Stage], rankers: Iterable[Ranker], folder: Path) -> dict[str, str]:
    """Copies the files that the stages need into a pipeline's folder; returns model name -> its folder there.

    A model is copied with the files that the model libraries read. The rankers save the models that they trained; the
    vectors by these are copied here. Raises UserError for links out of a folder.
    """
    from rerank.models.hub import encoder_folder  # loads torch
    from rerank.models.model_files import model_files

    places, made = {}, []
    _write_collection(world, folder / DOCUMENTS)
    for ranker in rankers:
        if isinstance(ranker, TrainedEncoderRanker):
            made += world.made_with(ranker.name)
    for name in models_of(stages):
        made += world.made_with(name)
        place = f"./{ENCODERS}/{short_hash(name)[:8]}-{re.sub(r'[^A-Za-z0-9.-]', '_', Path(name).name)[-60:]}"
        model = encoder_folder(world.place_of(name))
        copy_files(model, folder / place, model_files(model))
        places[name] = place
    with_rm3 = {settings.rm3 for settings in stages.values() if isinstance(settings, BM25Stage)}
    made += [world.index_with_words if rm3 else world.index for rm3 in sorted(with_rm3)]
    for path in dict.fromkeys(made):
        if path.is_relative_to(world.folder.path):  # an index elsewhere is rebuilt from the documents
            files = [file for file in files_below(path) if file.suffix != ".lock"]
            copy_files(path, folder / path.relative_to(world.folder.path), files)
    return places


def _write_collection(world: World, folder: Path) -> None:
    """Writes documents, queries and judgments into a new folder, in BEIR's layout."""
    texts, queries, qrels = world.texts, world.collection.queries, world.collection.qrels
    folder.mkdir()
    with (folder / CORPUS).open("w", encoding="utf-8") as file:
        for doc_id, title, body in progress(texts.documents(), texts.count(), "copying documents"):
            file.write(json.dumps({"_id": doc_id, "title": title, "text": body}, ensure_ascii=False) + "\n")
    with (folder / "queries.jsonl").open("w", encoding="utf-8") as file:
        for query_id, text in queries.items():
            file.write(json.dumps({"_id": query_id, "text": text}, ensure_ascii=False) + "\n")
    if qrels:
        rows = [f"{q}\t{doc_id}\t{grade}\n" for q in queries for doc_id, grade in qrels.get(q, {}).items()]
        (folder / QRELS).parent.mkdir()
        (folder / QRELS).write_text("query-id\tcorpus-id\tscore\n" + "".join(rows), encoding="utf-8")


def is_portable(folder: Path) -> bool:
    """Whether a pipeline's folder has the documents."""
    return (folder / DOCUMENTS).is_dir()


def check_places(folder: Path, stages: Mapping[str, Stage], places: Mapping[str, str]) -> None:
    """Raises UserError for a model of the stages that a portable folder has at no place, or outside it."""
    for name in models_of(stages):
        place = places.get(name, "")
        if not place.startswith("./"):
            raise UserError(
                f"{folder}: expected a place of the model {name} in the folder, got {place!r}; fit it again"
            )
        inside(folder, place)


@dataclass(frozen=True)
class _KeptSource:
    """A copied collection, with the name and the fingerprint of the original.

    So the copy can use the index and the vectors of the original, whose names have its fingerprint. See `Source` for
    the other attributes.
    """

    copy: Source
    name: str
    fingerprint: str

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.copy, attribute)


def kept_collection(folder: Path, name: str, fingerprint: str) -> Collection:
    """The collection in a portable folder, with the name and the fingerprint of the original."""
    return Collection(_KeptSource(open_source(str(folder / DOCUMENTS)), name, fingerprint))
