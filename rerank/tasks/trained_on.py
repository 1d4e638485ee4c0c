"""The collection that a checkpoint was trained on, with the settings that it was trained with."""

from dataclasses import replace
from typing import Any

from rerank.config import CollectionSettings
from rerank.data.collections import Collection, open_collection
from rerank.tasks.source_checks import expect_text
from rerank.utils.errors import UserError


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
    """The settings with the language and the field of queries of the checkpoint, where they have their defaults."""
    default = CollectionSettings()
    if settings.language == default.language:
        settings = replace(settings, language=saved.get("language", default.language))
    if not settings.query_field and not settings.queries:  # a file of queries has fields of its own
        settings = replace(settings, query_field=saved.get("query_field", default.query_field))
    return settings
