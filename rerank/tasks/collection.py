"""The collection that settings, or a checkpoint, name."""

from dataclasses import replace
from typing import Any

from rerank.config import CollectionSettings
from rerank.data.collections import Collection, open_collection
from rerank.data.letor.layouts import is_feature_source
from rerank.utils.errors import UserError

DEFAULT = CollectionSettings()


def open_settings(settings: CollectionSettings) -> Collection:
    """The collection that the settings name, with their queries."""
    return open_collection(settings.source, settings.queries)


def expect_text(source: str) -> None:
    """Raises UserError for feature vectors, which can be neither searched nor read."""
    if is_feature_source(source):
        raise UserError(
            f"{source}: holds feature vectors, no text: there is nothing to retrieve, to pre-train on or to score "
            "again; `rerank train` trains on them and writes the runs"
        )


def recorded(settings: CollectionSettings) -> dict[str, str]:
    """What a checkpoint records of its collection: the source, and the language if it is not the default one."""
    language = {} if settings.language == DEFAULT.language else {"language": settings.language}
    return {"collection": settings.source} | language


def open_trained_on(checkpoint: str, saved: dict[str, Any]) -> Collection:
    """Opens the collection that a checkpoint was trained on, which its config names."""
    source = saved.get("collection")
    if source is None:
        raise UserError(
            f"{checkpoint}: does not record the collection that it was trained on; name one with --collection"
        )
    expect_text(source)
    try:
        return open_collection(source)
    except UserError as error:
        raise UserError(
            f"{checkpoint}: the collection that it was trained on cannot be opened: {error}; name another one with "
            "--collection"
        ) from error


def as_trained(settings: CollectionSettings, saved: dict[str, Any]) -> CollectionSettings:
    """The settings with the language of the checkpoint, where they have the default one."""
    if settings.language == DEFAULT.language:
        settings = replace(settings, language=saved.get("language", DEFAULT.language))
    return settings
