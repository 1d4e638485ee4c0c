"""Compares run files with the first of them, with a significance test.

    python examples/evaluate_and_compare.py qrels.txt bm25.run ours.run

The judgments come first, then two runs or more.
"""

import sys
from pathlib import Path

import rerank

MEASURES = ["nDCG@20", "AP", "P@5"]  # names of ir_measures


def main(qrels_file: str, *run_files: str) -> None:
    qrels = rerank.read_qrels(qrels_file)
    runs = {Path(file).stem: rerank.read_run(file) for file in run_files}
    name, run = next(iter(runs.items()))
    values = rerank.evaluate(qrels, run, ["nDCG@20"])["nDCG@20"]
    print(f"{name}: nDCG@20 is lowest for query {min(values, key=values.__getitem__)}")

    # Means of all runs, and whether they differ significantly from the first.
    comparison = rerank.compare(runs, qrels, MEASURES, baseline=name)
    print(comparison, comparison.to_latex(), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
