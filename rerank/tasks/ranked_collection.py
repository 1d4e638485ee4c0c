"""Opens a collection of text with the run of its first stage: without torch, whose import takes 230 MB."""

from dataclasses import dataclass
from pathlib import Path

from rerank.config import Config, validate
from rerank.data.candidates import CandidateLists, select_candidates
from rerank.data.collections import Collection, queries_to_train
from rerank.data.trec_arrays import read_run_arrays
from rerank.runs.layout import CollectionFolder
from rerank.tasks.first_stage import first_stage_run, open_settings, with_texts
from rerank.tasks.folds import describe_folds, expect_same_folds, fold_names_of, queries_in_use
from rerank.tasks.source_checks import check_fold, expect_text
from rerank.utils.progress import log


@dataclass(frozen=True)
class RankedCollection:
    """A collection, its folder, the run of its first stage, and the candidates of every query from it."""

    collection: Collection
    folder: CollectionFolder
    first_stage: Path
    candidates: CandidateLists


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


def rank_collection(config: Config, collection: Collection, fold_name: str = "all") -> RankedCollection:
    """An open collection with its candidates; retrieves the first stage unless it exists.

    They are the candidates of the queries that `--collection.train-queries` leaves (see `queries_in_use`).
    """
    folder = CollectionFolder(Path(config.output.folder) / collection.name)
    queries = queries_in_use(config, collection, fold_name)
    run = first_stage_run(config, collection, folder, queries)
    depth, keep_scores = config.first_stage.depth, config.encoder.first_stage_weight > 0
    found = read_run_arrays(run, depth, queries)
    candidates = select_candidates(found, collection.qrels, depth, queries, keep_scores)
    return RankedCollection(with_texts(config, collection, folder), folder, run, candidates)
