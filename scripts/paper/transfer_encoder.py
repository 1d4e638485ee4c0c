"""What a bi-encoder that was fine-tuned on another collection adds to `rerank fit`, used as it is.

    python -m scripts.paper.transfer_encoder nfcorpus cystic-fibrosis time cranfield --encoder all-MiniLM-L6-v2 \
        --folder fits

fine-tunes the encoder on the training queries of the first collection, a folder in BEIR's layout with a published
split: one epoch of lists of a relevant document and a negative among BM25's first 100 documents, as the stage
`trained-encoder` does. Then it fits the default stages on each of the other collections, with the encoder as it was and
fine-tuned. A row has the mean of a stage with both encoders, and their difference with the p-value of a paired t-test
over the queries. What is in the folder is not made again.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rerank.config import CollectionSettings, Config, OutputSettings
from rerank.data.types import Fold
from rerank.evaluation.significance import paired_test
from rerank.evaluation.tables import aligned
from rerank.evaluation.weights import MEASURE, Values
from rerank.pipelines.stages import BM25Stage, TrainedEncoderStage
from rerank.pipelines.stages.trained_encoder import MODEL
from rerank.pipelines.stages.world import World
from scripts.paper.new_topics import by_random_parts

ROWS = ("dense", "neighbours", "nested")
"""The stages that are compared: the encoder alone, what learns nothing, and the value of what is chosen."""


def config_of(source: Path, folder: Path) -> Config:
    """A collection whose index and vectors are kept below `folder`."""
    return Config(CollectionSettings(str(source)), output=OutputSettings(str(folder / "runs")))


def fine_tuned(source: Path, encoder: str, lists: int, folder: Path) -> Path:
    """The folder of the encoder after one epoch of so many lists on the training queries."""
    model = folder / "fine-tuned" / MODEL
    if not model.exists():
        world = World.open(config_of(source, folder))
        (split,) = world.collection.folds
        queries = {query_id: world.collection.queries[query_id] for query_id in split.train}
        first = BM25Stage(k1=1.2, b=0.75).open(world, folder).rank(queries, [])
        stage = TrainedEncoderStage("bm25", encoder, lists_per_epoch=lists)
        model.parent.mkdir(parents=True, exist_ok=True)
        stage.fit(world, Fold("all", split.train, (), ()), [first], model.parent)
    return model


def rows_of(name: str, before: dict[str, Values], after: dict[str, Values]) -> list[Sequence[str]]:
    """The lines of a collection."""
    rows: list[Sequence[str]] = []
    for stage in ROWS:
        pairs = [(before[stage][query_id], after[stage][query_id]) for query_id in before[stage]]
        old, new = map(list, zip(*pairs, strict=True))
        row = [name, stage, f"{fmean(old):.4f}", f"{fmean(new):.4f}", f"{fmean(new) - fmean(old):+.4f}"]
        rows.append([*row, f"{paired_test(new, old):.4f}"])
    return rows


def main() -> None:
    """Prints a table of all collections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the collection with a published split that trains the encoder")
    parser.add_argument("collections", nargs="+", type=Path, help="the others, folders in BEIR's layout")
    parser.add_argument("--encoder", required=True, help="a bi-encoder of sentence-transformers")
    parser.add_argument("--folder", type=Path, required=True, help="the models, the index and the vectors")
    parser.add_argument("--lists", type=int, default=2064, help="training lists [default: 2064]")
    args = parser.parse_args()
    model = fine_tuned(args.source, args.encoder, args.lists, args.folder)
    rows: list[Sequence[str]] = [("collection", "stage", "as it was", "fine-tuned", "difference", "p")]
    for source in args.collections:
        config, place = config_of(source, args.folder), args.folder / source.resolve().name
        before = by_random_parts(config, args.encoder, place / "as-it-was")
        after = by_random_parts(config, str(model), place / "fine-tuned")
        rows += rows_of(source.name, before, after)
        print(f"{MEASURE}\n\n{aligned(rows)}\n", flush=True)


if __name__ == "__main__":
    main()
