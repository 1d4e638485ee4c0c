"""Retrieves the first stage of a collection, and writes what evaluation needs next to it."""

from pathlib import Path

from rerank.config import Config
from rerank.runs.layout import CollectionFolder
from rerank.tasks.first_stage import first_stage_run, open_settings
from rerank.tasks.folds import write_references
from rerank.tasks.ranked_collection import open_checked, rank_collection
from rerank.tasks.source_checks import expect_text


def retrieve(config: Config) -> Path:
    """The run of the first stage, retrieved unless it exists; the judgments and the folds are written next to it.

    With `--collection.queries` it is the run of every query of the file, and neither judgments nor folds are written:
    they are of the collection's own queries. Raises UserError for invalid settings, and for files that are missing or
    malformed.
    """
    if not config.collection.queries:
        collection = open_checked(config)
        if config.training.lists:  # from a file of settings: refused now, not when it trains
            from rerank.tasks.training_lists import open_lists  # loads torch

            open_lists(config, collection)
        found = rank_collection(config, collection)
        write_references(found.folder, found.collection, config.collection.folds, keeps_folds=True)
        return found.first_stage
    expect_text(config.collection.source)
    collection = open_settings(config.collection)
    return first_stage_run(config, collection, CollectionFolder(Path(config.output.folder) / collection.name))
