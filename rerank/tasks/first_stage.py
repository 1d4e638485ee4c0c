"""The collection of an experiment and its first stage: a run that the settings name, or BM25's, retrieved once.

Imports no torch, which takes 230 MB.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rerank.config import Config, validate
from rerank.config.languages import ENGLISH
from rerank.data.collections import Collection, queries_to_search, queries_to_train
from rerank.retrieval.bm25 import Searcher, write_bm25
from rerank.retrieval.indexed_texts import with_indexed_texts
from rerank.retrieval.java import java_version
from rerank.retrieval.lucene_index import choose_index
from rerank.runs.layout import CollectionFolder
from rerank.tasks.collection import expect_text, open_settings
from rerank.tasks.folds import check_fold, describe_folds, expect_same_folds, fold_names_of
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, kept_hash, short_hash
from rerank.utils.integrity import as_record, changes
from rerank.utils.json_files import read_json
from rerank.utils.locks import make_once
from rerank.utils.parallel import count_cores
from rerank.utils.progress import log


def open_checked(config: Config, fold_name: str = "all", judged: bool = False) -> Collection:
    """The collection of the settings, its folds checked; what is noteworthy of them is logged.

    `judged` is whether judgments are needed, as for training. Raises UserError for settings that are invalid, a fold
    that does not exist, and files that are missing or malformed.
    """
    validate(config)
    expect_text(config.collection.source)
    collection = open_settings(config.collection)
    if judged:
        collection.expect_judgments()
        queries_to_train(collection)  # before its folds: a file of queries may lack some
    check_fold(fold_name, fold_names_of(collection, config.collection.folds))
    for line in describe_folds(config, collection):
        log.info(line)
    if collection.qrels:  # before the first stage is retrieved, which would be for other queries
        folder = CollectionFolder(Path(config.output.folder) / collection.name)
        expect_same_folds(folder, collection, config.collection.folds)
    return collection


def first_stage_facts(config: Config, run: Path) -> dict[str, Any]:
    """What the manifest of a fold says of the run with its candidates."""
    settings = config.first_stage
    facts: dict[str, Any] = {"first_stage": {"run": str(run), "sha256": kept_hash(run)}, "java": None}
    if settings.run:
        return facts
    return {**facts, "java": {"version": java_version()}, "lucene_threads": settings.threads or count_cores()}


def first_stage_run(
    config: Config, collection: Collection, folder: CollectionFolder, in_use: Mapping[str, str] | None = None
) -> Path:
    """The run to re-rank: the one that the settings name, else BM25's, which is retrieved once.

    BM25 searches `queries_to_search`; the run of a file of queries has a name of its own. If fewer or more queries than
    those of `queries_to_train` are `in_use`, it searches these, for a run with a name of its own.
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
    searched, all_searched = (
        {"documents": collection.fingerprint, "queries": short_hash(*texts.items())}
        | ({} if language == ENGLISH else {"language": language})
        for texts in (queries, collection.queries)
    )

    def make() -> None:
        searcher = Searcher(find_index(config, collection, folder), settings.k1, settings.b, language)
        with write_bm25(file, searcher, queries, settings.depth, settings.threads or None) as run:
            if not run.queries:
                raise UserError(
                    f"{source}: BM25 finds no document for any of its {len(queries)} queries; expected the queries of "
                    f"{collection.source}, in the language that --collection.language names ({language})"
                )
            with atomic_write(origin) as tmp:
                tmp.write_text(json.dumps({**searched, "run": run.facts}), encoding="utf-8")
        log.info(f"BM25 of {run.queries} queries, {run.candidates} candidates: {file}")

    make_once(file, "ranking", make)
    _check_run(file, (searched, all_searched), collection.source)
    return file


def _check_run(file: Path, expected: Sequence[dict[str, str]], source: str) -> None:
    """Raises UserError if the run is not one of those `expected`, or has changed since it was retrieved.

    A run of all queries serves those that are judged, as of a collection whose judgments came later.
    """
    record, remedy = file.with_suffix(".json"), f"remove it and {file.name} to retrieve again"
    origin = read_json(record, dict[str, Any], remedy)
    try:
        changed = list(changes(file.parent, as_record({file.name: origin.pop("run", None)})))
    except ValueError as error:
        raise UserError(f"{record}: {error}; {remedy}") from error
    if origin not in expected:
        raise UserError(
            f"{file}: retrieved from other documents or queries than those of {source}; remove it to retrieve again, "
            "or take another --output.folder"
        )
    if changed:
        raise UserError(f"{file.parent}: changed since it was retrieved: {changed[0]}; remove {file} to retrieve again")


def find_index(config: Config, collection: Collection, folder: CollectionFolder) -> Path:
    """The Lucene index that the settings name, built under `folder` if it is the collection's own.

    Raises UserError if there is none; if the documents are missing too, so that none can be built, it names both.
    """
    settings, language = config.first_stage, config.collection.language
    try:
        return choose_index(settings.index, collection, folder.index, settings.threads or None, language)
    except UserError as no_index:
        if collection.has_documents:
            raise
        try:
            next(collection.documents())
        except UserError as no_documents:
            raise UserError(f"{no_documents}; and {no_index}") from no_index
        raise


def with_texts(config: Config, collection: Collection, folder: CollectionFolder) -> Collection:
    """The collection itself, or with the texts that the index stores if its documents are not on this machine."""
    if collection.has_documents:
        return collection
    return with_indexed_texts(collection, find_index(config, collection, folder))
