"""Data sets: what an experiment trains on, text or feature vectors."""

from pathlib import Path
from typing import TypeAlias

from rerank.config import Config
from rerank.data.candidates import select_candidates
from rerank.data.letor.layouts import is_feature_source
from rerank.data.lists import read_training_lists
from rerank.data.trec_arrays import read_run_arrays
from rerank.losses import LABELS
from rerank.runs.layout import CollectionFolder
from rerank.tasks.features import FeatureDataset, FeatureTask, open_features
from rerank.tasks.first_stage import first_stage_run, open_checked, with_texts
from rerank.tasks.folds import queries_in_use
from rerank.tasks.text import TextDataset, TextTask

Dataset: TypeAlias = TextDataset | FeatureDataset
FoldTask: TypeAlias = TextTask | FeatureTask


def open_dataset(config: Config, fold_name: str) -> Dataset:
    """Opens the collection of the settings for the fold of that name, or "all"; retrieves or parses what is missing.

    Raises UserError for a fold that does not exist and for files that are missing, such as judgments, or malformed.
    """
    if is_feature_source(config.collection.source):
        return open_features(config, fold_name)
    collection, file = open_checked(config, fold_name, judged=True), config.training.lists
    lists = read_training_lists(Path(file), collection.queries, LABELS[config.loss.name]) if file else None
    folder = CollectionFolder(Path(config.output.folder) / collection.name)
    queries = queries_in_use(config, collection, fold_name)
    run = first_stage_run(config, collection, folder, queries)
    depth, keep_scores = config.first_stage.depth, config.encoder.first_stage_weight > 0
    found = read_run_arrays(run, depth, queries)
    candidates = select_candidates(found, collection.qrels, depth, queries, keep_scores)
    collection = with_texts(config, collection, folder)
    return TextDataset(config, folder, collection, run, candidates, config.encoder.name, lists)
