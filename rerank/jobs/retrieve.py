"""Retrieves the first stage of a collection, and writes what evaluation needs next to it."""

from pathlib import Path

from rerank.config import Config
from rerank.runs.layout import CollectionFolder
from rerank.tasks.collection import expect_text, open_settings
from rerank.tasks.first_stage import first_stage_run, open_checked
from rerank.tasks.folds import queries_in_use, write_references


def retrieve(config: Config) -> Path:
    """The run of the first stage, retrieved unless it exists; the judgments and the folds are written next to it.

    With `--collection.queries` it is the run of every query of the file, and neither judgments nor folds are written:
    they are of the collection's own queries. Raises UserError for invalid settings, and for files that are missing or
    malformed.
    """
    if config.collection.queries:
        expect_text(config.collection.source)
        collection = open_settings(config.collection)
        return first_stage_run(config, collection, CollectionFolder(Path(config.output.folder) / collection.name))
    collection = open_checked(config)
    folder = CollectionFolder(Path(config.output.folder) / collection.name)
    run = first_stage_run(config, collection, folder, queries_in_use(config, collection))
    write_references(folder, collection, config.collection.folds)
    return run
