"""`rerank demo`: the whole pipeline on a generated collection, from nothing to the table."""

import json
import time
from pathlib import Path

from rerank.config import (
    CollectionSettings,
    Config,
    EncoderSettings,
    ListsSettings,
    LossSettings,
    OutputSettings,
    TrainingSettings,
)
from rerank.runs.table import compare_files
from rerank.utils.progress import log

LOSSES = ("hinge", "smoothi")


def run_demo(folder: Path) -> None:
    """Makes the collection and a small BERT, retrieves, trains with both losses over five folds, prints the table.

    What is there already is not made again; remove `folder` to start over.
    """
    runs = [folder / "towns" / loss / "all.run" for loss in LOSSES]
    if all(run.exists() for run in runs):
        log.info(f"the runs are in {folder} already; remove the folder to make them again")
    else:
        _make_runs(folder)
    print(compare_files([folder / "towns" / "bm25.run", *runs]))


def _make_runs(folder: Path) -> None:
    from rerank.data.demo import make_collection
    from rerank.experiments.train import train_folds
    from rerank.models.tiny_bert import make_encoder

    begun = time.time()
    collection, encoder = folder / "collections" / "towns", folder / "encoder"
    if not collection.is_dir():
        make_collection(collection)
    if not encoder.is_dir():
        files = [collection / "corpus.jsonl", collection / "queries.jsonl"]
        rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
        make_encoder(encoder, [f"{row.get('title', '')} {row['text']}" for row in rows])
    for loss in LOSSES:
        train_folds(_config(folder, collection, encoder, loss), "all")
    log.info(f"{time.time() - begun:.0f} seconds")


def _config(folder: Path, collection: Path, encoder: Path, loss: str) -> Config:
    return Config(
        collection=CollectionSettings(source=str(collection)),
        encoder=EncoderSettings(name=str(encoder)),
        lists=ListsSettings(relevant=2, non_relevant=4),
        loss=LossSettings(name=loss),
        training=TrainingSettings(
            epochs=5, lists_per_epoch=48, lists_per_step=4, lr=1e-3, head_lr=1e-3, patience=2, measure="ndcg_cut_10"
        ),
        output=OutputSettings(folder=str(folder)),
    )
