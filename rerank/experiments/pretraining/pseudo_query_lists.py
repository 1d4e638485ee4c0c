"""Lists of pseudo-queries for teachers to score, as a file of training lists: see `rerank distill --pseudo-queries`."""

import json
from dataclasses import replace
from pathlib import Path

from rerank.config import Config
from rerank.data.collections import Collection
from rerank.experiments.first_stage import find_index
from rerank.experiments.pretraining.make_lists import make_pseudo_lists
from rerank.experiments.pretraining.pseudo_queries import parse_variant_id
from rerank.runs.layout import CollectionFolder
from rerank.utils.files import atomic_write, short_hash


def write_pseudo_query_lists(config: Config, collection: Collection, folder: CollectionFolder, count: int) -> Path:
    """The file with the lists of `count` pseudo-queries, which is made once; equal pseudo-queries have one list.

    A list has the pseudo-query's source and the negatives of pre-training (`--pretraining.hard-negatives`, …). Nothing
    of a document is hidden, as a teacher's score says what its source is worth; the labels, 1 for the source, are
    replaced by such scores. Raises UserError if the documents are too few or too short.
    """
    pretraining = replace(config.pretraining, steps=count, lists_per_step=1, labels="source", held_out=1)
    path = folder.pseudo_query_lists(_identity(config, collection, count))
    if not path.is_file():
        lists = make_pseudo_lists(
            replace(config, pretraining=pretraining), collection, find_index(config, collection, folder)
        )
        by_text = {lists.queries[found.query_id]: found for found in reversed(lists.train)}
        with atomic_write(path) as tmp, tmp.open("w", encoding="utf-8") as out:
            for text, found in reversed(by_text.items()):
                doc_ids = [parse_variant_id(variant)[0] for variant in found.doc_ids]
                record = {"query": text, "doc_ids": doc_ids, "labels": found.labels}
                out.write(json.dumps(record, ensure_ascii=False) + "\n")
    return path


def _identity(config: Config, collection: Collection, count: int) -> str:
    """A hash of everything that the lists depend on."""
    settings, first = config.pretraining, config.first_stage
    return short_hash(
        collection.fingerprint,
        count,
        sorted(settings.weights().items()),
        (settings.keep_sentence, settings.hard_negatives, settings.random_negatives, settings.depth),
        (first.index, first.k1, first.b, config.collection.language),
        config.training.seed,
    )
