"""`rerank score`: any run, re-ranked by a trained model."""

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from rerank.cli.checks import check_file, check_inputs, check_path, print_output
from rerank.cli.settings import with_settings
from rerank.config import Config
from rerank.data.letor.layouts import is_feature_source
from rerank.utils.files import check_output
from rerank.utils.parameters import FilePath, OutputPath, PathText


@with_settings(
    "first_stage.index",
    "first_stage.depth",
    "encoder.max_doc_tokens",
    "encoder.pooling",
    "training.device",
    "training.precision",
    "training.max_tokens_per_forward",
    "output.folder",
)
def score(
    checkpoint: PathText,
    run: FilePath,
    *,
    out: OutputPath,
    collection: Annotated[PathText, Parameter(name=("--collection.source", "--collection"), show_default=False)] = "",
    config: Config,
) -> None:
    """Re-ranks a run with a trained model or a cross-encoder of the hub.

    Parameters
    ----------
    checkpoint
        runs/<collection>/<experiment>/fold1/checkpoint, or any Hugging Face cross-encoder.
    run
        The TREC run to re-rank.
    out
        The TREC run to write, and its manifest; - for standard output, without a manifest.
    collection
        Where the queries and documents are; default: the collection that the checkpoint was trained on.
    """
    if collection:
        config = replace(config, collection=replace(config.collection, source=collection))
        check_inputs(config)
    check_path("checkpoint", checkpoint)
    check_output(out)
    if not (collection and is_feature_source(collection)):  # which is refused with a better reason
        check_file("run", run)
    from rerank.experiments.rescore import rescore

    print_output(rescore(config, checkpoint, run, out, collection or None))
