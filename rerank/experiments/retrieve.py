"""Retrieves the first stage of a collection, and writes what evaluation needs next to it."""

from pathlib import Path

from rerank.config import Config, validate
from rerank.experiments.checks import check_first_stage, expect_text
from rerank.experiments.first_stage import first_stage_run, open_settings
from rerank.experiments.text import open_text
from rerank.retrieval.languages import check_language
from rerank.runs.layout import CollectionFolder


def retrieve(config: Config) -> Path:
    """The run of the first stage, retrieved unless it exists; the judgments and the folds are written next to it.

    With `--collection.queries` it is the run of every query of the file, and neither judgments nor folds are written:
    they are of the collection's own queries. Raises UserError for invalid settings, and for files that are missing or
    malformed.
    """
    if not config.collection.queries:
        dataset = open_text(config)
        dataset.write_references()
        return dataset.first_stage
    validate(config)
    expect_text(config.collection.source)
    check_first_stage(config)
    check_language(config.collection.language)
    collection = open_settings(config.collection)
    return first_stage_run(config, collection, CollectionFolder(Path(config.output.folder) / collection.name))
