"""`rerank fit`: the best pipeline that a collection and its judgments allow, as one folder."""

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from rerank.cli.arguments import Budget, milliseconds
from rerank.cli.settings import with_settings
from rerank.config import Config
from rerank.config.files import check_path
from rerank.utils.cluster import LOCAL, Engine
from rerank.utils.parameters import OptionalPath, PathText
from rerank.utils.progress import log, print_result


@with_settings(
    "collection.language",
    "first_stage.index",
    "first_stage.threads",
    "training.device",
    "training.precision",
    "training.seed",
    "output.folder",
)
def fit(
    collection: PathText,
    *,
    encoder: PathText = "sentence-transformers/all-MiniLM-L6-v2",
    cross_encoder: Annotated[PathText, Parameter(show_default=False)] = "",
    pipeline: OptionalPath = None,
    measure: str = "nDCG@20",
    out: OptionalPath = None,
    portable: Annotated[bool, Parameter(negative=())] = False,
    budget: Budget = "",
    on: Engine = LOCAL,
    config: Config,
) -> None:
    """Fits a pipeline on a collection: cross-validates its stages, selects the one that answers, prints a table.

    Parameters
    ----------
    collection
        An ir_datasets id, or a folder in BEIR's layout; with or without judgments.
    encoder
        The bi-encoder of the stages: a hub name or a folder; none: BM25 alone.
    cross_encoder
        A cross-encoder that re-ranks, fine-tuned in each fold: a hub name or a folder.
    pipeline
        A TOML file with the stages to try, in the place of the default ones.
    measure
        The measure that stages are compared by.
    out
        The folder to write [default: runs/<collection>/pipeline].
    portable
        Copy the index, the vectors, the documents and the encoders into the folder, for another machine.
    budget
        Choose among the stages that answer a query within this time on this machine, such as 100ms.
    on
        Where cross-encoders are fitted: local, ray, or ray://HOST:10001.
    """
    check_path("--cross-encoder", cross_encoder)
    from rerank.evaluation.tables.table import render
    from rerank.pipelines.evidence_table import as_table, limits
    from rerank.pipelines.fit import fit as fit_pipeline
    from rerank.pipelines.folder import read_evidence
    from rerank.pipelines.pipeline import Pipeline

    config = replace(config, collection=replace(config.collection, source=collection))
    folder = fit_pipeline(
        config,
        Pipeline.read(pipeline) if pipeline else None,
        encoder=encoder,
        cross_encoder=cross_encoder,
        out=out,
        measure=measure,
        portable=portable,
        budget=milliseconds(budget),
        engine=on,
    ).fitted.folder
    record = read_evidence(folder)
    print_result(render(as_table(record)))
    print_result(folder)
    log.info(limits(record))
