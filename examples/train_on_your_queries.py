"""Fine-tunes an encoder on a collection: python examples/train_on_your_queries.py [COLLECTION [ENCODER [EPOCHS]]]

COLLECTION is a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR's layout), or an ir_datasets id.
"""

import sys

import rerank
from rerank.config import TrainingSettings


def main(collection: str = "my-collection", encoder: str = "bert-base-uncased", epochs: str = "20") -> None:
    training = TrainingSettings(epochs=int(epochs))
    config = rerank.Config(collection=collection, encoder=encoder, loss="smoothi", training=training)
    experiment = rerank.train(config, "1")  # the first of five folds; without it, all five
    print(f"checkpoint, run file, log and manifest: {experiment / 'fold1'}")

    # Re-rank a BM25 run with the trained model.
    model = rerank.Reranker.load(str(experiment / "fold1" / "checkpoint"))
    run = model.rerank(rerank.read_run(experiment.parent / "bm25.run"), rerank.open_collection(collection), depth=20)
    rerank.write_run("reranked.run", run, "rerank")


if __name__ == "__main__":
    main(*sys.argv[1:])
