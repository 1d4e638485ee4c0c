"""`rerank demo`: all steps of an experiment on a generated collection."""

import time
from pathlib import Path

from rerank import config
from rerank.data.collections import open_collection
from rerank.experiments.runs.layout import CollectionFolder
from rerank.experiments.runs.run_files import compare_files
from rerank.utils.locks import make_once
from rerank.utils.parameters import FilePath
from rerank.utils.progress import log

LOSSES = {"hinge": config.LossSettings("hinge"), "smoothi": config.LossSettings("smoothi", {"alpha": 10.0})}
"""Experiment -> its loss. Validation prefers alpha 10 among 1 (the paper's), 3, 10, 30 and 100 (docs/results.md)."""


def demo(folder: FilePath = Path("runs/demo")) -> None:
    """Generates a collection and a small BERT, retrieves, trains with two losses on three folds, and prints a table.

    Existing results are kept; remove `folder` to start over.

    Parameters
    ----------
    folder
        Where the collection, the small encoder and the runs are written.
    """
    results = CollectionFolder(folder / "towns")
    runs = [results.experiment(loss).all_run for loss in LOSSES]
    if all(run.exists() for run in runs):
        log.info(f"the runs exist already in {folder}; remove the folder to make them again")
    else:
        from rerank.experiments.train import train_folds

        start = time.time()
        make_inputs(folder)
        for name in LOSSES:
            train_folds(demo_config(folder, name))
        log.info(f"{time.time() - start:.0f} seconds")
    print(compare_files([results.bm25_run(), *runs]))
    checkpoint = results.experiment("smoothi").fold("1").checkpoint
    search = f'rerank search {checkpoint} "velquingor climate" --output.folder {folder}'
    log.info(f"next: {search}; rerank report {results.path}")


def make_inputs(folder: Path) -> None:
    """Makes the collection and the small encoder in the folder, unless they exist."""
    from rerank.data.demo import make_collection
    from rerank.models.tiny_bert import make_encoder

    collection, encoder = folder / "collections" / "towns", folder / "encoder"

    def texts() -> list[str]:
        made = open_collection(str(collection))
        return [*(document.text for document in made.documents()), *made.queries.values()]

    make_once(collection, "collection", lambda: make_collection(collection))
    make_once(encoder, "encoder", lambda: make_encoder(encoder, texts()))


def demo_config(folder: Path, loss: str) -> config.Config:
    """The settings of one of LOSSES.

    A learning rate that decays to 0, averaged weights and a single epoch make the table nearly the same on every
    processor (docs/results.md, the demo). With several epochs, the few validation queries would choose one by chance.
    """
    return config.Config(
        collection=config.CollectionSettings(source=str(folder / "collections" / "towns"), folds=3),
        encoder=config.EncoderSettings(name=str(folder / "encoder")),
        lists=config.ListsSettings(relevant=2, non_relevant=4),
        loss=LOSSES[loss],
        training=config.TrainingSettings(
            epochs=1,
            lists_per_epoch=960,
            lists_per_step=4,
            lr=1e-3,
            schedule="linear",
            warmup_ratio=0.1,
            average=0.97,
            validate_queries=16,
            measure="nDCG@10",
        ),
        output=config.OutputSettings(folder=str(folder)),
    )
