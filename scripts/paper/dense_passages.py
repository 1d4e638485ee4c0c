"""Compares ways to score a long document by the vectors of its passages: the maximum, the mean, and the first alone.

    python -m scripts.paper.dense_passages shared/data/time sentence-transformers/all-MiniLM-L6-v2

Each row is a run of all documents by the bi-encoder. The last column counts the folds whose validation queries prefer
the row by the measure. The vectors are those of `rerank retrieve --first-stage.encoder`, made unless they exist.
"""

import argparse
from pathlib import Path
from statistics import fmean

import numpy as np

from rerank.config import Config, FirstStageSettings
from rerank.data.collections import open_collection, queries_to_train
from rerank.data.types import Run
from rerank.evaluation.evaluate import evaluate
from rerank.experiments.dense_first_stage import open_dense
from rerank.experiments.folds import folds_of
from rerank.runs.layout import CollectionFolder

DEPTH = 1000


def by_passages(scores: np.ndarray, starts: np.ndarray) -> dict[str, np.ndarray]:
    """(queries, documents) scores in each way; scores: (queries, passages); starts: where documents begin."""
    counts = np.diff([*starts, scores.shape[1]])
    return {
        "max": np.maximum.reduceat(scores, starts, axis=1),
        "mean": np.add.reduceat(scores, starts, axis=1) / counts,
        "first": scores[:, starts],
    }


def compare(source: str, encoder_name: str, measure: str, output: str) -> str:
    """The table of a collection."""
    collection = open_collection(source)
    config = Config(collection=source, first_stage=FirstStageSettings(encoder=encoder_name))
    encoder, documents = open_dense(config, collection, CollectionFolder(Path(output) / collection.name))
    queries = {query_id: text for query_id, text in queries_to_train(collection).items() if text.strip()}
    vectors = np.stack(list(encoder.encode_queries(queries).values()))
    scores = encoder.similarity(vectors, np.asarray(documents.vectors))
    doc_ids = [documents.doc_id(number) for number in range(len(documents))]
    values = {}
    for name, table in by_passages(scores, documents.offsets[:-1]).items():
        run: Run = {
            query_id: {doc_ids[place]: float(row[place]) for place in np.argsort(-row)[:DEPTH]}
            for query_id, row in zip(queries, table, strict=True)
        }
        values[name] = evaluate(dict(collection.qrels), run, [measure])[measure]
    chosen = [
        max(values, key=lambda name: fmean(values[name][q] for q in fold.valid if q in values[name]))
        for fold in folds_of(collection, config.collection.folds)
    ]
    several = int((np.diff(documents.offsets) > 1).sum())
    lines = [f"{source}: {several} of {len(documents)} documents have several passages", f"score  {measure}  folds"]
    return "\n".join(
        [*lines, *(f"{name:<6} {fmean(of.values()):.4f}   {chosen.count(name)}" for name, of in values.items())]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("encoder")
    parser.add_argument("--measure", default="nDCG@20")
    parser.add_argument("--output", default="runs", help="the folder of --output.folder")
    given = parser.parse_args()
    print(compare(given.collection, given.encoder, given.measure, given.output))
