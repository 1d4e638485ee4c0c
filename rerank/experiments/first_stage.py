"""The first stage of an experiment: a run that the settings name, or BM25's run, retrieved once. Imports no torch."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from rerank.config import CollectionSettings, Config, FirstStageSettings, validate
from rerank.data.collections import Collection, queries_to_search, queries_to_train
from rerank.data.types import FINAL
from rerank.experiments.collection import (
    collection_of,
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
from rerank.utils.files import kept_hash, short_hash_of, write_text
from rerank.utils.integrity import Facts, changes
from rerank.utils.json_files import read_json
from rerank.utils.locks import locked
from rerank.utils.parallel import count_cores
from rerank.utils.progress import log
from rerank.utils.texts import check_name, counted


def open_checked(config: Config, fold_name: str = "all", judged: bool = False) -> Collection:
    """Opens the collection of the settings, which must have judgments if `judged`; logs the notes on its folds.

    Raises UserError for invalid settings, a fold that does not exist, and files that are missing or malformed.
    """
    validate(config)
    expect_text(config.collection.source)
    collection = collection_of(config.collection)
    if judged:
        collection.origin.expect_judgments()
        queries_to_train(collection)  # checked first: a file of queries may lack queries of the folds
    names = fold_names_of(config, collection)
    if check_name("fold", fold_name) not in (*names, "all", FINAL):
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
        collection = collection_of(config.collection)
        return first_stage_run(config, collection, folder_of(config, collection))
    collection = open_checked(config)
    run = first_stage_run(config, collection, folder_of(config, collection), queries_in_use(config, collection))
    write_references(config, collection)
    return run


def first_stage_facts(config: Config, run: Path) -> dict[str, object]:
    """The facts of a manifest about the first stage's run; one that the settings name has its absolute path."""
    settings = config.first_stage
    path = run.absolute() if settings.run else run
    facts: dict[str, object] = {"first_stage": {"run": str(path), "sha256": kept_hash(run)}, "java": None}
    if settings.run:
        return facts
    return {**facts, "java": {"version": java_version()}, "lucene_threads": settings.threads or count_cores()}


def first_stage_run(
    config: Config, collection: Collection, folder: CollectionFolder, in_use: Mapping[str, str] | None = None
) -> Path:
    """The run to re-rank: the one that the settings name, or BM25's, which is retrieved once.

    BM25 searches the queries of `queries_to_search`, or those `in_use` if they are not all of `queries_to_train`.
    """
    if config.first_stage.run:
        return Path(config.first_stage.run)
    queries, named = _queries_to_rank(config, collection, in_use)
    acting = _settings_of(config.first_stage, config.collection) | named
    searched = {"settings": acting, "documents": collection.fingerprint, "queries": short_hash_of(queries.items())}
    file = _file_for(folder, acting)
    if not file.exists():
        with locked(folder.path, "ranking"):
            file = _file_for(folder, acting)  # another process may have made bm25.run by now
            if not file.exists():
                _retrieve(config, collection, folder, queries, file, searched)
    _check_run(file, searched, collection.source)
    return file


def _queries_to_rank(
    config: Config, collection: Collection, in_use: Mapping[str, str] | None
) -> tuple[Mapping[str, str], dict[str, str]]:
    """The queries that BM25 searches, and the names of a file of queries and of drawn queries; "" for neither."""
    queries, file = queries_to_search(collection), config.collection.queries
    if not queries:
        raise UserError(
            f"{file or collection.source}: has no query to search; expected at least one, or --collection.queries, a "
            "file of them"
        )
    given = ""
    if file:
        given = f"{Path(file).name.partition('.')[0]}-{short_hash_of(queries.items())[:8]}".removeprefix("-")
    if in_use is not None and len(in_use) != len(queries_to_train(collection)):
        return in_use, {"queries": given, "drawn": short_hash_of(in_use.items())[:8]}
    return queries, {"queries": given, "drawn": ""}


def _retrieve(
    config: Config,
    collection: Collection,
    folder: CollectionFolder,
    queries: Mapping[str, str],
    file: Path,
    searched: Mapping[str, object],
) -> None:
    """Writes BM25's run and its record: `searched`, and the size and the hash of the run."""
    settings, source, language = config.first_stage, collection.source, config.collection.language
    searcher = Searcher(find_index(config, collection, folder), settings.k1, settings.b, language)
    with write_bm25(file, searcher, queries, settings.depth, settings.threads or None) as run:
        if not run.queries:
            raise UserError(
                f"{config.collection.queries or source}: BM25 finds no document for any of its {len(queries)} queries; "
                f"expected the queries of {source}, in the language that --collection.language names ({language})"
            )
        write_text(_record_of(file), json.dumps({**searched, "run": run.facts}))
    log.info(f"BM25 of {counted(run.queries, 'query')}, {counted(run.candidates, 'candidate')}: {file}")


def _record_of(file: Path) -> Path:
    """The JSON file beside BM25's run: its settings, documents and queries, and its own size and hash."""
    return file.with_suffix(".json")


def _settings_of(settings: FirstStageSettings, collection: CollectionSettings) -> dict[str, str | float]:
    """The settings that decide BM25's run, without those of the queries that it searches."""
    ours = {key: getattr(settings, key) for key in ("index", "depth", "k1", "b")}
    return ours | {"query_field": collection.query_field, "language": collection.language}


def _file_for(folder: CollectionFolder, settings: Mapping[str, str | float]) -> Path:
    """The first run of the collection's own queries is bm25.run; others have what differs from it in their name.

    A run of a file of queries, or of drawn ones, has what differs from the default settings in its name.
    """
    first, usual = folder.bm25_run(), settings
    if settings["queries"] or settings["drawn"]:
        usual = _settings_of(FirstStageSettings(), CollectionSettings()) | {"queries": "", "drawn": ""}
    elif first.exists():
        usual = _read_record(first)["settings"]
    return folder.bm25_run({key: value for key, value in settings.items() if value != usual.get(key)})


class Searched(TypedDict):
    """The record of BM25's run."""

    settings: dict[str, str | float]
    documents: str
    queries: str
    run: Facts


def _read_record(file: Path) -> Searched:
    """Reads the record of a run; raises UserError if it is missing or damaged."""
    record: Searched = read_json(_record_of(file), Searched, f"remove it and {file.name} to retrieve again")
    return record


def _check_run(file: Path, searched: Mapping[str, object], source: str) -> None:
    """Raises UserError if the run was retrieved from other documents or queries, or was changed since."""
    record = _read_record(file)
    if any(record.get(key) != value for key, value in searched.items()):
        raise UserError(
            f"{file}: retrieved from other documents or queries than those of {source}, or with other settings; remove "
            "it to retrieve again, or take another --output.folder"
        )
    if changed := list(changes(file.parent, {file.name: record["run"]})):
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
