"""Opens the collection of an experiment and makes its folds: a published split, official folds, or drawn ones."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rerank.config import CollectionSettings, Config
from rerank.data.collections import Collection, open_collection, queries_to_train
from rerank.data.folds import draw_queries, final_fold, make_folds, read_folds, write_folds
from rerank.data.letor.layouts import is_feature_source
from rerank.data.trec import write_qrels
from rerank.data.types import FINAL, Fold
from rerank.experiments.runs.layout import CollectionFolder
from rerank.models.hub import Recorded
from rerank.utils.errors import UserError
from rerank.utils.locks import locked
from rerank.utils.progress import log

ENOUGH = 1000
"""Judged queries from which a cross-encoder, trained from a plain encoder, is ahead of BM25 (docs/results.md)."""
QUERIES_LOOKED_UP = 1000
"""Judged queries whose documents are looked up, at most."""
DOCUMENTS_LOOKED_UP = 10
"""Judged documents of a query that are looked up, at most."""
INHERITED = ("language", "query_field")
"""The settings that a checkpoint records with its collection, and that a command on it takes over."""


def folder_of(config: Config, collection: Collection) -> CollectionFolder:
    """The folder with the results of the collection."""
    return CollectionFolder(Path(config.output.folder) / collection.name)


def expect_text(source: str) -> None:
    """Raises UserError for feature vectors, which have no text to search or to score."""
    if is_feature_source(source):
        raise UserError(
            f"{source}: holds feature vectors, no text: there is nothing to retrieve or to score again; "
            "`rerank train` trains on them and writes the runs"
        )


def check_judged_documents(collection: Collection) -> str:
    """Looks up a sample of the judged documents; returns a warning if the collection has less than half, else "".

    Raises UserError if it has none, as with judgments of whole documents and a corpus of passages.
    """
    query_ids = _spread([query_id for query_id in collection.qrels if collection.qrels[query_id]], QUERIES_LOOKED_UP)
    asked = {d: q for q in query_ids for d in _spread(list(collection.qrels[q]), DOCUMENTS_LOOKED_UP)}
    known = collection.known(asked)
    if len(known) * 2 >= len(asked):
        return ""
    sample = f"of the {len(asked)} judged documents that were looked up"
    doc_id, query_id = next((d, q) for d, q in asked.items() if d not in known)
    if known:
        share = f"({len(known) / len(asked):.0%}), not {doc_id} of query {query_id}; compare the ids"
        return f"{collection.source}: has {len(known)} {sample} {share}"
    first = next(iter(collection.documents())).doc_id
    raise UserError(
        f"{collection.source}: has none {sample}: query {query_id} has a judgment of {doc_id}, and the first document "
        f"is {first}; compare the ids"
    )


def _spread(values: Sequence[str], count: int) -> Sequence[str]:
    """About `count` of the values, at equal distances."""
    return values[:: -(-len(values) // count) or 1]


def collection_of(settings: CollectionSettings) -> Collection:
    """Opens the collection that the settings name; raises UserError if no reader opens it."""
    return open_collection(settings.source, settings.queries, settings.query_fields)


def recorded(settings: CollectionSettings) -> dict[str, str]:
    """The facts of the collection that a checkpoint records: its source, and the other settings if not the defaults."""
    return {"collection": settings.source} | _other_than_default(settings)


def as_trained(settings: CollectionSettings, checkpoint: str, saved: Recorded) -> CollectionSettings:
    """The settings; if they name no source, with the collection that a checkpoint was trained on, in its language.

    Raises UserError if the checkpoint's config, `saved`, records none, or if the collection cannot be opened.
    """
    if settings.source:
        return settings
    source, trained_on = saved.get("collection"), "the collection that it was trained on"
    if source is None:
        raise UserError(f"{checkpoint}: does not record {trained_on}; name one with --collection")
    expect_text(source)
    try:
        open_collection(source)
    except UserError as error:
        raise UserError(
            f"{checkpoint}: {trained_on} cannot be opened: {error}; name another one with --collection"
        ) from error
    given = _other_than_default(settings)
    language = given.get("language", saved.get("language", settings.language))
    field = "" if settings.queries else saved.get("query_field", "")  # a file has fields of its own
    return replace(settings, source=source, language=language, query_field=given.get("query_field", field))


def _other_than_default(settings: CollectionSettings) -> dict[str, str]:
    default = CollectionSettings()
    values = {key: getattr(settings, key) for key in INHERITED}
    return {key: value for key, value in values.items() if value != getattr(default, key)}


def folds_of(config: Config, collection: Collection) -> list[Fold]:
    """The collection's own folds, or else its judged queries in `--collection.folds` folds."""
    judged = [query_id for query_id in collection.queries if query_id in collection.qrels]
    return list(collection.folds) or make_folds(judged, config.collection.folds)


def fold_names_of(config: Config, collection: Collection) -> list[str]:
    """The names of the folds of `folds_of`, also for a collection without judgments."""
    return [fold.name for fold in collection.folds] or [str(n + 1) for n in range(config.collection.folds)]


def drawn_folds(config: Config, collection: Collection, fold_name: str = "all") -> list[Fold]:
    """The folds, or for "final" the fold of the model to deploy: all judged queries, with some for validation.

    Training and validation queries are drawn as the settings say (see `draw_queries`).
    """
    training, folds = config.training, folds_of(config, collection)
    if fold_name == FINAL:
        judged = [query_id for query_id in collection.queries if collection.qrels.get(query_id)]
        folds = [final_fold(judged, training.seed)]
    train, valid = config.collection.train_queries, training.validate_queries
    return [draw_queries(fold, train, valid, training.seed) for fold in folds]


def draws_queries(config: Config) -> bool:
    """Whether `--collection.train-queries` or `--training.validate-queries` leaves queries of folds out."""
    return (config.collection.train_queries, config.training.validate_queries) != ("all", "all")


def queries_in_use(config: Config, collection: Collection, fold_name: str = "all") -> dict[str, str]:
    """The queries of `queries_to_train` that are in a fold after the drawing of queries (see `draws_queries`)."""
    queries = queries_to_train(collection)
    if not collection.qrels or not draws_queries(config):
        return queries
    folds = drawn_folds(config, collection, fold_name)
    used = {query_id for fold in folds for split in (fold.train, fold.valid, fold.test) for query_id in split}
    return {query_id: text for query_id, text in queries.items() if query_id in used}


def expect_same_folds(config: Config, collection: Collection) -> None:
    """Raises UserError if the collection's folder has experiments with other folds than `folds_of`."""
    folder = folder_of(config, collection)
    if not (folder.folds.exists() and folder.has_results):
        return
    before, now = read_folds(folder.folds), folds_of(config, collection)
    if before != now:
        differ = "; now ".join(", ".join(fold.name for fold in folds) for folds in (before, now))
        raise UserError(
            f"{folder.folds}: the experiments in this folder have other folds ({differ}); take another "
            "--output.folder, or go back to the same judgments and --collection.folds"
        )


def write_references(config: Config, collection: Collection) -> None:
    """Writes the judgments and the folds, if any, for evaluation. Raises UserError as `expect_same_folds`."""
    folder = folder_of(config, collection)
    if not collection.qrels:
        log.info(f"{collection.source}: has no judgments, so neither {folder.qrels.name} nor folds are made")
        return
    with locked(folder.path, "folds"):
        expect_same_folds(config, collection)
        write_qrels(collection.qrels, folder.qrels)
        write_folds(folder.folds, folds_of(config, collection))
