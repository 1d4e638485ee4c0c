"""`rerank doctor`: checks that every part of the pipeline is available on this machine."""

import importlib.metadata
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from rerank.cli.settings import with_settings
from rerank.config import Config
from rerank.data.letor.layouts import fold_names, is_feature_source
from rerank.models.encoder import load_encoder
from rerank.retrieval.java import describe_java
from rerank.retrieval.lucene_index import choose_index
from rerank.tasks.first_stage import open_settings
from rerank.utils.errors import UserError


@with_settings(
    "collection",
    "first_stage.run",
    "first_stage.index",
    "encoder.name",
    "training.device",
    "training.precision",
    "output.folder",
)
def doctor(*, config: Config) -> None:
    """Checks Java, the collection, the index, the encoder, the GPU and the disk; exit code 1 if one is missing."""
    sys.exit(0 if examine(config) else 1)


def examine(config: Config) -> bool:
    """Prints a line for every part of the pipeline, and returns whether all are ready.

    Feature vectors need no Java, first stage or encoder.
    """
    parts: dict[str, Callable[[], str]] = {
        "Java": describe_java,
        "Pyserini": lambda: importlib.metadata.version("pyserini"),
        "collection": lambda: _collection(config),
        "first stage": lambda: _first_stage(config),
        "encoder": lambda: _encoder(config),
        "device": lambda: _device(config),
        "disk": lambda: _disk(Path(config.output.folder)),
    }
    if is_feature_source(config.collection.source):
        parts = {"collection": lambda: _features(config)} | {name: parts[name] for name in ("device", "disk")}
    ready = True
    for name, describe in parts.items():
        try:
            print(f"ready    {name:<12} {describe()}")
        except UserError as error:
            ready = False
            print(f"missing  {name:<12} {error}")
    return ready


def _collection(config: Config) -> str:
    collection = open_settings(config.collection)
    texts = "with its documents" if collection.has_documents else "documents from the index"
    judged = sum(query_id in collection.qrels for query_id in collection.queries)
    return f"{collection.source}: {len(collection.queries)} queries, {judged} of them judged; {texts}"


def _features(config: Config) -> str:
    names = fold_names(config.collection.source, config.collection.folds)
    return f"{config.collection.source}: feature vectors; folds: {', '.join(names)}"


def _first_stage(config: Config) -> str:
    if config.first_stage.run:
        return f"the run {config.first_stage.run}"
    collection = open_settings(config.collection)
    if config.first_stage.index not in ("auto", "own"):
        return f"BM25 from {choose_index(config.first_stage.index, collection, Path())}"
    if collection.has_documents:
        return "BM25; the index is built from the documents on first use"
    return "BM25; Pyserini's prebuilt index is downloaded on first use"


def _encoder(config: Config) -> str:
    loaded = load_encoder(config.encoder.name)
    parameters = sum(parameter.numel() for parameter in loaded.model.parameters())
    return f"{config.encoder.name}: {parameters / 1e6:.1f} M parameters, passages of {loaded.max_length} tokens"


def _device(config: Config) -> str:
    from rerank.training.device import describe_device

    return describe_device(config.training.device, config.training.precision)


def _disk(folder: Path) -> str:
    existing = next(parent for parent in [folder.resolve(), *folder.resolve().parents] if parent.is_dir())
    return f"{shutil.disk_usage(existing).free / 2**30:.0f} GiB free at {existing}"
