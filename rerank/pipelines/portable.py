"""A pipeline's folder that another machine can use: with the documents, the index, the vectors and the encoders."""

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from rerank.data.collections import Collection
from rerank.data.kept import KeptSource
from rerank.data.sources import open_source
from rerank.runs.layout import CollectionFolder
from rerank.stages.world import World
from rerank.utils.files import short_hash
from rerank.utils.progress import progress

DOCUMENTS, ENCODERS = "documents", "encoders"


def copy_world(world: World, encoders: Iterable[str], folder: Path) -> dict[str, str]:
    """Copies what a pipeline needs into its folder; returns the name of each encoder -> its folder therein."""
    from rerank.models.hub import encoder_folder  # loads torch

    texts, places = world.texts, {}
    (folder / DOCUMENTS).mkdir()
    with (folder / DOCUMENTS / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for doc_id, title, body in progress(texts.documents(), texts.count(), "copying documents"):
            file.write(json.dumps({"_id": doc_id, "title": title, "text": body}, ensure_ascii=False) + "\n")
    with (folder / DOCUMENTS / "queries.jsonl").open("w", encoding="utf-8") as file:
        for query_id, text in world.collection.queries.items():
            file.write(json.dumps({"_id": query_id, "text": text}, ensure_ascii=False) + "\n")
    for name in encoders:
        path = encoder_folder(name)
        place = f"./{ENCODERS}/{short_hash(name)[:8]}-{re.sub(r'[^A-Za-z0-9.-]', '_', path.name)[-60:]}"
        shutil.copytree(path, folder / place)
        places[name] = place
    kept = CollectionFolder(folder)
    for made, copied in ((world.folder.index, kept.index), (world.folder.embeddings, kept.embeddings)):
        if made.is_dir():
            shutil.copytree(made, copied, ignore=shutil.ignore_patterns("*.lock", "*.unfinished"))
    return places


def is_portable(folder: Path) -> bool:
    """Whether the folder has the documents."""
    return (folder / DOCUMENTS).is_dir()


def kept_collection(folder: Path, name: str, fingerprint: str) -> Collection:
    """The documents and queries of a portable folder, with the name and the fingerprint that they were copied from."""
    return Collection(KeptSource(open_source(str(folder / DOCUMENTS)), name, fingerprint))
