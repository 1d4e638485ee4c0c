"""Compares losses after a pre-training without labels, and with no pre-training: makes the runs and their table.

    python -m scripts.paper.compare_pretraining shared/data/cystic-fibrosis microsoft/MiniLM-L12-H384-uncased

The rows are BM25; the pre-training alone; after it hinge and SmoothI-NDCG on the paper's lists of four, and
SmoothI-NDCG, LambdaLoss and softmax on all candidates; SmoothI-NDCG on lists of four without pre-training. All see the
same number of documents, and each has a second row in which it is fused with BM25. Every row is an ordinary `rerank`
command, which is printed. Existing runs are kept, so the script resumes after an interruption. Flags that the script
does not know are passed to all commands (--pretraining.lr 1e-5, --output.folder runs/x).
"""

import argparse
from pathlib import Path

from rerank.runs.layout import ExperimentFolder
from scripts.paper.commands import rerank

FOUR = ["--lists.relevant", "2", "--lists.non-relevant", "2"]
ALL = ["--lists.relevant", "all", "--lists.non-relevant", "all"]
ARMS = {
    "hinge-4": ["--loss", "hinge", *FOUR],
    "smoothi-4": ["--loss", "smoothi", "--loss.metric", "ndcg", *FOUR],
    "smoothi-all": ["--loss", "smoothi", "--loss.metric", "ndcg", *ALL],
    "lambda-all": ["--loss", "lambda_loss", "--loss.metric", "ndcg", *ALL],
    "softmax-all": ["--loss", "softmax", *ALL],
    "cold-smoothi-4": ["--loss", "smoothi", "--loss.metric", "ndcg", *FOUR],
}
DOCUMENTS_PER_STEP = 32  # the paper's: eight lists of four


def compare(given: argparse.Namespace, rest: list[str]) -> str:
    """Makes the missing runs and returns the table."""
    fold, depth = given.fold, given.depth
    common = ["--collection", given.collection, "--encoder", given.encoder, "--first-stage.depth", str(depth), *rest]
    steps = ["--pretraining.steps", str(given.steps)]
    bm25 = Path(rerank("retrieve", *common))
    alone = bm25.with_name("alone") / "pretraining"
    if not alone.is_dir():
        rerank("pretrain", *common, *steps, "--out", str(alone))
    if not (alone.with_suffix(".run")).is_file():
        rerank("score", str(alone), str(bm25), *common, "--out", f"{alone}.run")
    runs = [str(bm25), f"{alone}.run"]
    for name, words in ARMS.items():
        list_size = depth if "all" in words else 4
        seen = ["--epochs", str(given.epochs), "--training.lists-per-epoch", str(max(1, given.documents // list_size))]
        seen += ["--training.lists-per-step", str(max(1, DOCUMENTS_PER_STEP // list_size))]
        seen += ["--pretraining.steps", "0"] if name.startswith("cold") else steps
        folder = ExperimentFolder(Path(rerank("train", "--fold", fold, "--name", name, *common, *seen, *words)))
        runs.append(str(folder.all_run if fold == "all" else folder.fold(fold).test_run))
    return rerank("eval", *runs, "--interpolate", str(bm25), "--fold", fold, "--format", given.format)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("encoder")
    parser.add_argument("--fold", default="all")
    parser.add_argument("--documents", type=int, default=1000, help="documents per epoch")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=400, help="maximum steps of the pre-training")
    parser.add_argument("--format", default="text", help="of the table")
    parser.add_argument("--depth", type=int, default=100, help="candidates per query")
    print(compare(*parser.parse_known_args()))
