"""Makes the runs of the recipe (docs/recipe.md) on a collection, and the table that compares its steps.

    python -m scripts.paper.recipe my-collection sentence-transformers/all-MiniLM-L6-v2

The rows are BM25 with its default parameters and with those of the recipe, the bi-encoder, the last two fused, the
bi-encoder with feedback, all three fused, a query adapter (configs/query-adapter.toml) and the re-ranker of
configs/recipe.toml, each trained on the fusion of the three, and the fusion of the adapter, and of both, with the
three, which has the documents that were not re-ranked too.
The encoder is the bi-encoder, and a cross-encoder made from it is trained; `--cross-encoder` gives another one. Every
row is an ordinary `rerank` command, which is printed. Existing runs are kept, so the script resumes after an
interruption. Flags that the script does not know are passed to the training of the re-ranker (--encoder.max-doc-tokens
160).
"""

import argparse
from pathlib import Path

from rerank.runs.layout import ExperimentFolder
from scripts.paper.commands import rerank

BM25 = ["--first-stage.k1", "1.2", "--first-stage.b", "0.75"]
CONFIGS = Path(__file__).parents[2] / "configs"


def compare(given: argparse.Namespace, rest: list[str]) -> str:
    """Makes the missing runs and returns the table."""
    common = ["--collection", given.collection, "--output.folder", given.output]
    retrieve = ["retrieve", *common, "--first-stage.depth", str(given.retrieved)]
    dense = [*retrieve, "--first-stage.encoder", given.encoder]
    default = rerank(*retrieve)
    two = [rerank(*retrieve, *BM25), rerank(*dense)]
    earlier = fuse("earlier", two)
    three = [*two, rerank(*dense, "--first-stage.feedback", earlier)]
    fused = [fuse(name, runs, "--method", "interpolate") for name, runs in (("two", two), ("three", three))]

    def train(settings: str, encoder: str, name: str, *flags: str) -> str:
        words = ["--config", str(CONFIGS / settings), *common, "--encoder", encoder, "--name", name]
        words += ["--epochs", given.epochs] if given.epochs else []
        folder = rerank("train", "--fold", "all", *words, "--first-stage.run", *three, *flags)
        return str(ExperimentFolder(Path(folder)).all_run)

    adapted = train("query-adapter.toml", given.encoder, f"{given.name}-adapter")
    reranked = train("recipe.toml", given.cross_encoder or given.encoder, given.name, *rest)
    last = [
        fuse(name, [fused[1], *trained], "--method", "interpolate")
        for name, trained in (
            (f"{given.name}-adapter-and-three", [adapted]),
            (f"{given.name}-both-and-three", [adapted, reranked]),
        )
    ]
    runs = [default, *two, fused[0], three[-1], fused[1], adapted, reranked, *last]
    return rerank("eval", *runs, "--format", given.format, "--measures", "P@10", "nDCG@10", "nDCG@20", "AP")


def fuse(name: str, runs: list[str], *method: str) -> str:
    """The file of that name next to the runs, which are fused into it unless it exists."""
    file = str(Path(runs[0]).with_name(f"{name}.run"))
    if not Path(file).is_file():
        rerank("fuse", *runs, *method, "--out", file)
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("encoder", help="of the dense first stage: a bi-encoder")
    parser.add_argument("--cross-encoder", default="", help="the encoder that is trained; default: the bi-encoder")
    parser.add_argument("--name", default="recipe", help="of the experiment")
    parser.add_argument("--output", default="runs", help="the folder of the results")
    parser.add_argument("--retrieved", type=int, default=1000, help="documents of a query in the runs that are fused")
    parser.add_argument("--epochs", default="", help="of both trainings; default: those of their configurations")
    parser.add_argument("--format", default="text", help="of the table")
    print(compare(*parser.parse_known_args()))
