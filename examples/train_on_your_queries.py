"""Fine-tunes an encoder on a collection, for a number of epochs.

    python examples/train_on_your_queries.py cranfield bert-base-uncased 1

The collection is a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR's layout), or an ir_datasets id.
"""

import sys

import rerank
from rerank.config import TrainingSettings


def main(collection: str = "my-collection", encoder: str = "bert-base-uncased", epochs: str = "20") -> None:
    training = TrainingSettings(epochs=int(epochs))
    config = rerank.Config(collection=collection, encoder=encoder, loss="smoothi", training=training)
    fold = rerank.train(config, "1").fold("1")  # the first of five folds; without "1" all are trained
    print(f"checkpoint, run file, log and manifest: {fold.path}")

    # Re-rank BM25's results with the trained model; the queries need no judgments.
    opened = rerank.open_collection(collection)
    run = rerank.Reranker.load(fold.checkpoint).rerank(rerank.retrieve(opened, depth=20), opened)
    rerank.write_run(run, "reranked.run", "rerank")


if __name__ == "__main__":
    main(*sys.argv[1:])
