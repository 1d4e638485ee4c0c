"""What a cross-encoder that was trained on another collection adds to `rerank fit`, used as it is.

    python -m scripts.paper.transfer cystic-fibrosis time --cross-encoder CHECKPOINT --encoder all-MiniLM-L6-v2 \
        --folder fits

fits the default stages on each collection, a folder in BEIR's layout, with the checkpoint as the stage `borrowed` above
`neighbours`; the last stage, `combined`, learns the weights of all scores. The stages up to `neighbours` have equal
weights, so that the model scores its candidates once, and not for each part that is held out. Prints the evidence of
each collection, as `rerank fit` does.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import rerank
from rerank.config import CollectionSettings, Config, OutputSettings
from rerank.evaluation.weights import MEASURE
from rerank.pipelines.defaults import default_stages
from rerank.pipelines.stages import CrossEncoderStage, FeaturesStage
from rerank.pipelines.stages.base import Stage
from scripts.paper.votes import BASE, stages_below

BORROWED = "borrowed"


def stages_with(checkpoint: str, encoder: str, depth: int) -> dict[str, Stage]:
    """The default stages, and a trained cross-encoder above `neighbours` before the last one."""
    stages = default_stages(encoder, "", 0) | stages_below(encoder, 0)
    last = stages.pop("combined")
    assert isinstance(last, FeaturesStage)
    stages[BORROWED] = CrossEncoderStage(BASE, checkpoint, trained=False, depth=depth)
    return stages | {"combined": replace(last, of=(*last.of, BORROWED))}


def main() -> None:
    """Prints the evidence of each collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="+", type=Path, help="folders in BEIR's layout")
    parser.add_argument("--cross-encoder", required=True, help="a checkpoint of `rerank train`, or a cross-encoder")
    parser.add_argument("--encoder", required=True, help="a bi-encoder of sentence-transformers")
    parser.add_argument("--folder", type=Path, required=True, help="what is fitted, and the index and the vectors")
    parser.add_argument("--depth", type=int, default=50, help="documents of a query that are scored [default: 50]")
    args = parser.parse_args()
    stages = rerank.Pipeline(stages_with(args.cross_encoder, args.encoder, args.depth))
    for source in args.collections:
        config = Config(CollectionSettings(str(source)), output=OutputSettings(str(args.folder / "runs")))
        place = args.folder / source.resolve().name / "transfer"
        pipeline = rerank.fit(config, stages, measure=MEASURE, out=place)
        print(f"{source.name}\n\n{pipeline.evidence}\n", flush=True)


if __name__ == "__main__":
    main()
