"""The first stage of an experiment: a run that the settings name, or BM25's run, retrieved once. Imports no torch."""

import json
from collections.abc import Mapping
from pathlib import Path

from rerank.config import Config, validate
from rerank.config.languages import ENGLISH
from rerank.data.collections import Collection, open_collection, queries_to_search, queries_to_train
from rerank.data.types import FINAL
from rerank.experiments.collection import (
    expect_same_folds,
    expect_text,
    fold_names_of,
    folder_of,
    queries_in_use,
    write_references,
)
from rerank.experiments.runs.layout import CollectionFolder
from rerank.retrieval.bm25 import Searcher, write_bm25
from rerank.retrieval.java import java_version
from rerank.retrieval.lucene_index import choose_index, with_indexed_texts
from rerank.utils.errors import UserError
from rerank.utils.files import kept_hash, short_hash, write_text
from rerank.utils.integrity import Record, changes
from rerank.utils.json_files import check_shape, read_json
from rerank.utils.locks import make_once
from rerank.utils.parallel import count_cores
from rerank.utils.progress import log


def open_checked(config: Config, fold_name: str = "all", judged: bool = False) -> Collection:
    """Opens the collection of the settings, which must have judgments if `judged`; logs the notes on its folds.

    Raises UserError for invalid settings, a fold that does not exist, and files that are missing or malformed.
    """
    validate(config)
    expect_text(config.collection.source)
    collection = open_collection(config.collection.source, config.collection.queries)
    if judged:
        collection.origin.expect_judgments()
        queries_to_train(collection)  # checked first: a file of queries may lack queries of the folds
    names = fold_names_of(config, collection)
    if fold_name not in (*names, "all", FINAL):
        raise UserError(f"fold {fold_name}: no such fold; expected {', '.join(names)}, all or {FINAL}")
    for note in collection.origin.judged.notes:
        log.info(note)
    if collection.qrels:  # checked before the first stage is retrieved, which depends on the folds
        expect_same_folds(config, collection)
    return collection


def retrieve(config: Config) -> Path:
    """Retrieves the run of the first stage unless it exists; writes judgments and folds next to it.

    With `--collection.queries`, retrieves every query of the file and writes no judgments or folds. Raises UserError
    for invalid settings, and for files that are missing or malformed.
    """
    if config.collection.queries:
        expect_text(config.collection.source)
        collection = open_collection(config.collection.source, config.collection.queries)
        return first_stage_run(config, collection, folder_of(config, collection))
    collection = open_checked(config)
    run = first_stage_run(config, collection, folder_of(config, collection), queries_in_use(config, collection))
    write_references(config, collection)
    return run


def first_stage_facts(config: Config, run: Path) -> dict[str, object]:
    """The facts of a manifest about the first stage's run."""
    settings = config.first_stage
    facts: dict[str, object] = {"first_stage": {"run": str(run), "sha256": kept_hash(run)}, "java": None}
    if settings.run:
        return facts
    return {**facts, "java": {"version": java_version()}, "lucene_threads": settings.threads or count_cores()}


def first_stage_run(
    config: Config, collection: Collection, folder: CollectionFolder, in_use: Mapping[str, str] | None = None
) -> Path:
    """The run to re-rank: the one that the settings name, or BM25's, which is retrieved once.

    BM25 searches the queries of `queries_to_search`, or those `in_use` if they are not all of `queries_to_train`. The
    name of the run has a hash of the queries if they are `in_use` or from a file.
    """
    settings, language = config.first_stage, config.collection.language
    if settings.run:
        return Path(settings.run)
    queries, source = queries_to_search(collection), config.collection.queries or collection.source
    if not queries:
        raise UserError(
            f"{source}: has no query to search; expected at least one, or --collection.queries, a file of them"
        )
    name, drawn = short_hash(*queries.items())[:8], ""
    if in_use is not None and len(in_use) != len(queries_to_train(collection)):
        queries = dict(in_use)
        drawn = short_hash(*queries.items())[:8]
    file = folder.bm25_run(settings, config.collection, name, drawn)
    origin = file.with_suffix(".json")
    searched = {"documents": collection.fingerprint, "queries": short_hash(*queries.items())}
    searched |= {} if language == ENGLISH else {"language": language}

    def make() -> None:
        searcher = Searcher(find_index(config, collection, folder), settings.k1, settings.b, language)
        with write_bm25(file, searcher, queries, settings.depth, settings.threads or None) as run:
            if not run.queries:
                raise UserError(
                    f"{source}: BM25 finds no document for any of its {len(queries)} queries; expected the queries of "
                    f"{collection.source}, in the language that --collection.language names ({language})"
                )
            write_text(origin, json.dumps({**searched, "run": run.facts}))
        log.info(f"BM25 of {run.queries} queries, {run.candidates} candidates: {file}")

    make_once(file, "ranking", make)
    _check_run(file, searched, collection.source)
    return file


def _check_run(file: Path, searched: dict[str, str], source: str) -> None:
    """Raises UserError if the run was retrieved from other documents or queries, or was changed since."""
    record, remedy = file.with_suffix(".json"), f"remove it and {file.name} to retrieve again"
    origin = read_json(record, dict[str, object], remedy)
    try:
        recorded = check_shape({file.name: origin.pop("run", None)}, Record)
    except ValueError as error:
        raise UserError(f"{record}: {error}; {remedy}") from error
    if origin != searched:
        raise UserError(
            f"{file}: retrieved from other documents or queries than those of {source}; remove it to retrieve again, "
            "or take another --output.folder"
        )
    if changed := list(changes(file.parent, recorded)):
        raise UserError(f"{file.parent}: changed since it was retrieved: {changed[0]}; remove {file} to retrieve again")


def find_index(config: Config, collection: Collection, folder: CollectionFolder, with_words: bool = False) -> Path:
    """The Lucene index of the settings; the collection's own is built in `folder` (see `choose_index`)."""
    settings, language = config.first_stage, config.collection.language
    return choose_index(settings.index, collection, folder.index, settings.threads or None, language, with_words)


def with_texts(config: Config, collection: Collection, folder: CollectionFolder) -> Collection:
    """The collection; if its documents are not on this machine, with the texts that the index stores."""
    if collection.has_documents:
        return collection
    return with_indexed_texts(collection, find_index(config, collection, folder))
