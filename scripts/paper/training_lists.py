"""nDCG@10 of a cross-encoder by where its training lists come from, on a collection with a published split.

    python -m scripts.paper.training_lists nfcorpus --encoder all-MiniLM-L6-v2 --folder lists

trains on all training queries with lists that are drawn from BM25's candidates, as `rerank train` does, with hard
negatives that `rerank mine` finds in a ranking, and with the order of the same ranking, as `rerank distill` does. The
ranking is that of `rerank fit` without judgments: the default stages that learn nothing. The settings are those of
`training_curve`, and an epoch has as many documents for each kind of lists. A row has the mean of the validation
queries, and of the test queries alone and fused with BM25, with gains and p-values as in `training_curve`. What is in
the folder already is not made again.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import rerank
from rerank.config import CollectionSettings, Config, LossSettings, OutputSettings
from rerank.data.collections import open_collection, queries_to_train
from rerank.data.trec import write_run
from rerank.evaluation.significance import paired_test
from rerank.evaluation.tables import aligned
from rerank.experiments.distill import distill
from rerank.experiments.mine import Mining, mine_lists
from rerank.experiments.runs.layout import ExperimentFolder
from rerank.experiments.train import train_folds
from scripts.paper.table4 import measured
from scripts.paper.training_curve import LISTS, MEASURE, Trained, parser_of, settings_of

DOCUMENTS = 4
"""Documents of a list that is drawn or mined."""

TAUGHT_DOCUMENTS = 8
"""Documents of a list whose order the ranking teaches; an epoch has fewer of these lists."""

MINED = {"mined-1-100": (1, 100), "mined-31-100": (31, 100)}
"""Kind of lists -> first and last rank of their negatives; the first 30 documents are often relevant, not judged."""

KINDS = ("drawn", *MINED, "taught")
"""What is compared."""


def teacher_run(source: Path, encoder: str, folder: Path) -> Path:
    """The ranking of all training, validation and test queries by the stages that learn nothing."""
    run = folder / "teacher.run"
    if not run.exists():
        copy = folder / "unjudged" / source.name
        if not copy.exists():
            copy.mkdir(parents=True)
            for name in ("corpus.jsonl", "queries.jsonl"):
                shutil.copy(source / name, copy / name)
        config = Config(CollectionSettings(str(copy)), output=OutputSettings(str(folder / "runs")))
        pipeline = rerank.fit(config, encoder=encoder, out=folder / "unjudged" / "pipeline")
        write_run(pipeline.rank(queries_to_train(open_collection(str(source)))), run, "teacher")
    return run


def train(kind: str, config: Config, run: Path) -> ExperimentFolder:
    """Trains on lists of a kind; `run` is the ranking that they are mined or taught from."""
    if kind == "taught":
        training = replace(config.training, lists_per_epoch=LISTS * DOCUMENTS // TAUGHT_DOCUMENTS)
        config = replace(config, loss=LossSettings("rank_distil"), training=training)
        return distill(config, str(run), documents=TAUGHT_DOCUMENTS)
    if kind in MINED:
        lists = run.with_name(f"{kind}.jsonl")
        if not lists.exists():
            mine_lists(config, str(run), Mining(*MINED[kind], negatives=DOCUMENTS - 1, sampling="random"), lists)
        training = replace(config.training, lists=str(lists))
        config = replace(config, training=training, output=replace(config.output, name=kind))
    return train_folds(config)


def row_of(name: str, trained: Trained) -> list[str]:
    """A line of the table."""
    valid = measured({query: trained.qrels[query] for query in trained.valid}, trained.valid, MEASURE)
    base = list(trained.values(trained.first).values())
    row = [name, f"{fmean(valid.values()):.4f}"]
    for run in (trained.test, trained.fused_with(trained.first)):
        own = list(trained.values(run).values())
        row += [f"{fmean(own):.4f}", f"{fmean(own) - fmean(base):+.4f}", f"{paired_test(own, base):.4f}"]
    return row


def main() -> None:
    """Prints the table after each training."""
    parser = parser_of(__doc__)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    args = parser.parse_args()
    run = teacher_run(args.collection, args.encoder, args.folder)
    config = settings_of(args.collection, args.folder, args)
    rows = [["lists", "validation", "trained", "- BM25", "p", "fused", "- BM25", "p"]]
    for kind in args.kinds:
        rows.append(row_of(kind, Trained.of(train(kind, config, run))))
        print(f"{args.collection.name}: {MEASURE}\n\n{aligned(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
