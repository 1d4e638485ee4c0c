"""Mixes a re-ranker's scores with BM25's.

    python examples/fuse_with_bm25.py valid.txt bm25.run ours.run fused.run

Validation queries choose the weight: the judgments are theirs.
"""

import sys
from statistics import mean

import rerank


def main(qrels_file: str, bm25_file: str, ours_file: str, fused_file: str = "fused.run") -> None:
    qrels = rerank.read_qrels(qrels_file)
    bm25, ours = rerank.read_run(bm25_file), rerank.read_run(ours_file)
    ours = {query_id: scores for query_id, scores in ours.items() if query_id in bm25}

    # A weight of 0 is BM25, 1 the re-ranker. Choose it on queries whose results you do not report.
    values = {}
    for weight in (0.0, 0.25, 0.5, 0.75, 1.0):
        fused = rerank.fuse_scores([bm25, ours], (1 - weight, weight))
        values[weight] = mean(rerank.evaluate(qrels, fused, ["nDCG@20"])["nDCG@20"].values())
        print(f"weight {weight:.2f}: nDCG@20 = {values[weight]:.4f}")
    best = max(values, key=values.__getitem__)
    rerank.write_run(rerank.fuse_scores([bm25, ours], (1 - best, best)), fused_file, "fused")


if __name__ == "__main__":
    main(*sys.argv[1:])
