"""Ranks texts for a query.

    python examples/rerank_texts.py cross-encoder/ms-marco-MiniLM-L6-v2

The model is a checkpoint folder of `rerank train`, or a cross-encoder on the Hugging Face hub.
"""

import sys

import rerank

QUERY = "how many people live in Berlin?"
DOCUMENTS = [
    "Berlin is known for its museums and its night life.",
    "Berlin has 3.7 million inhabitants, more than any other city in the European Union.",
    "New York City has 8.3 million inhabitants.",
]


def main(model: str = "cross-encoder/ms-marco-MiniLM-L6-v2") -> None:
    for index, score, text in rerank.Reranker.load(model).rank(QUERY, DOCUMENTS, top_k=2):
        print(f"{score:8.3f}  document {index}: {text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
