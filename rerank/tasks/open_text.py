"""Opens a collection of text as a data set: folds are checked and the first stage is retrieved."""

from dataclasses import replace

from rerank.config import Config
from rerank.data.collections import Collection
from rerank.tasks.ranked_collection import open_checked, rank_collection
from rerank.tasks.text import TextDataset
from rerank.tasks.training_lists import open_lists


def open_text(config: Config, fold_name: str = "all", judged: bool = False) -> TextDataset:
    """Opens the collection of the settings, and retrieves the first stage unless it exists.

    `judged` is whether judgments are needed, as for training. Raises UserError for settings that are invalid, a fold
    that does not exist, and files that are missing or malformed.
    """
    collection = open_checked(config, fold_name, judged)
    lists = open_lists(config, collection)
    return replace(text_dataset(config, collection, fold_name), lists=lists)


def text_dataset(config: Config, collection: Collection, fold_name: str = "all") -> TextDataset:
    """The data set of an open collection; retrieves the first stage unless it exists."""
    found = rank_collection(config, collection, fold_name)
    return TextDataset(config, found.folder, found.collection, found.first_stage, found.candidates, config.encoder.name)
