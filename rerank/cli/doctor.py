"""`rerank doctor`: checks the installation and, if given, a collection and an encoder."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rerank import __version__
from rerank.config import CollectionSettings, Config, EncoderSettings, FirstStageSettings, TrainingSettings
from rerank.config.flags import Flags, only
from rerank.config.settings import often
from rerank.data.letor.layouts import fold_names, is_feature_source
from rerank.experiments.collection import check_judged_documents, collection_of
from rerank.models.encoder import load_encoder
from rerank.retrieval.java import java_version
from rerank.retrieval.lucene_index import choose_index
from rerank.training.device import describe_device
from rerank.utils.errors import UserError, escaped
from rerank.utils.parameters import PathText
from rerank.utils.plugins import load_plugins, plugin_versions


@dataclass(frozen=True)
class CheckedCollection(CollectionSettings):
    """The collection that is checked, if one is given."""

    source: Annotated[PathText, often("--collection"), Parameter(show_default=False)] = ""
    """An ir_datasets id, a folder in BEIR's layout, a file of pairs or triples, or SVMlight files of features."""


@dataclass(frozen=True)
class CheckedEncoder(EncoderSettings):
    """The encoder that is checked, if one is given."""

    name: Annotated[PathText, often("--encoder"), Parameter(show_default=False)] = ""
    """A Hugging Face encoder or cross-encoder: a hub name or a folder."""


@dataclass(frozen=True)
class DoctorFlags(Flags):
    """The settings that name the collection, the encoder and the device to check."""

    collection: CheckedCollection = CheckedCollection()
    first_stage: Annotated[FirstStageSettings, only("first_stage", "run", "index")] = FirstStageSettings()
    encoder: Annotated[CheckedEncoder, only("encoder", "name")] = CheckedEncoder()
    training: Annotated[TrainingSettings, only("training", "device", "precision")] = TrainingSettings()


def doctor(*, flags: DoctorFlags = DoctorFlags()) -> None:
    """Checks Java, the packages, the device, and the given collection and encoder; exit code 1 if one is missing."""
    config = flags.config()
    source = config.collection.source
    checks: dict[str, Callable[[], str]] = {"Java": java_version, "packages": _packages}
    if source and is_feature_source(source):  # needs no Java and no first stage
        checks = {"packages": _packages, "collection": lambda: _features(config)}
    elif source:
        checks |= {"collection": lambda: _collection(config), "first stage": lambda: _first_stage(config)}
    if config.encoder.name:
        checks["encoder"] = lambda: _encoder(config)
    checks["device"] = lambda: describe_device(config.training.device, config.training.precision)
    ready = True
    for name, describe in checks.items():
        try:
            print(f"ready    {name:<12} {escaped(describe())}")
        except UserError as error:
            ready = False
            print(f"missing  {name:<12} {error}")
    sys.exit(0 if ready else 1)


def _packages() -> str:
    load_plugins()
    versions = {name: version(name) for name in ("torch", "transformers", "sentence-transformers", "pyserini")}
    versions = {"rerank": __version__, **versions, **plugin_versions()}
    return ", ".join(f"{name} {found}" for name, found in versions.items())


def _collection(config: Config) -> str:
    collection = collection_of(config.collection)
    texts = "with its documents" if collection.has_documents else "documents from the index"
    judged = sum(query_id in collection.qrels for query_id in collection.queries)
    line = check_judged_documents(collection) if collection.found_at_once else ""
    facts = f"{collection.source}: {len(collection.queries)} queries, {judged} of them judged; {texts}"
    return f"{facts}; {line}" if line else facts


def _features(config: Config) -> str:
    names = fold_names(config.collection.source, config.collection.folds)
    return f"{config.collection.source}: feature vectors; folds: {', '.join(names)}"


def _first_stage(config: Config) -> str:
    if config.first_stage.run:
        return f"the run {config.first_stage.run}"
    collection = collection_of(config.collection)
    if config.first_stage.index not in ("auto", "own"):
        return f"BM25 from {choose_index(config.first_stage.index, collection, Path())}"
    if collection.has_documents:
        return "BM25; the index is built from the documents on first use"
    return "BM25; Pyserini's prebuilt index is downloaded on first use"


def _encoder(config: Config) -> str:
    loaded = load_encoder(config.encoder.name)
    parameters = sum(parameter.numel() for parameter in loaded.model.parameters())
    return f"{config.encoder.name}: {parameters / 1e6:.1f} M parameters, passages of {loaded.max_length} tokens"
