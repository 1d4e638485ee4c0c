"""`rerank fit`: fits the best pipeline for a collection and its judgments, as one folder."""

from dataclasses import dataclass, replace
from typing import Annotated

from cyclopts import Parameter

from rerank.cli.arguments import Budget, milliseconds
from rerank.config import CollectionSettings, FirstStageSettings, OutputSettings, TrainingSettings
from rerank.config.files import check_local_path
from rerank.config.flags import Flags, only
from rerank.utils.cluster import LOCAL, Engine
from rerank.utils.parameters import OptionalPath, PathText
from rerank.utils.progress import log, print_result


@Parameter(name="*")
@dataclass(frozen=True)
class FitOptions:
    """The stages to try, the selection, and the folder."""

    encoder: PathText = "sentence-transformers/all-MiniLM-L6-v2"
    """The bi-encoder of the stages: a hub name or a folder; none: only BM25 and neighbours."""
    cross_encoder: Annotated[PathText, Parameter(show_default=False)] = ""
    """A cross-encoder that re-ranks, fine-tuned in each part: a hub name or a folder."""
    sparse_encoder: Annotated[PathText, Parameter(show_default=False)] = ""
    """A sparse encoder that retrieves too, such as SPLADE: a hub name or a folder."""
    train_encoder: Annotated[bool, Parameter(negative=())] = False
    """Also fine-tune the bi-encoder on the judgments, as a stage that answers only if it is ahead."""
    pipeline: OptionalPath = None
    """A TOML file with the stages to try [default: the default stages]."""
    without: Annotated[tuple[str, ...], Parameter(consume_multiple=(1, None), negative=(), show_default=False)] = ()
    """Stages to leave out, such as similar adapter."""
    measure: str = "nDCG@20"
    """The measure that stages are compared by."""
    out: OptionalPath = None
    """The folder to write [default: runs/<collection>/pipeline]."""
    portable: Annotated[bool, Parameter(negative=())] = False
    """Copy the index, the vectors, the documents and the encoders into the folder, for another machine."""
    budget: Budget = ""
    """Choose among the stages that answer a query within this time on this machine, such as 100ms."""
    on: Engine = LOCAL
    """Where cross-encoders and trained encoders are fitted: local, ray, or ray://HOST:10001."""


@dataclass(frozen=True)
class FitFlags(Flags):
    """The settings that all stages share."""

    collection: Annotated[CollectionSettings, only("collection", "query_field", "language")] = CollectionSettings()
    first_stage: Annotated[FirstStageSettings, only("first_stage", "index", "threads")] = FirstStageSettings()
    training: Annotated[TrainingSettings, only("training", "device", "precision", "seed")] = TrainingSettings()
    output: Annotated[OutputSettings, only("output", "folder")] = OutputSettings()


def fit(collection: PathText, *, options: FitOptions = FitOptions(), flags: FitFlags = FitFlags()) -> None:
    """Fits a pipeline on a collection: cross-validates its stages, selects the one that answers, prints a table.

    Parameters
    ----------
    collection
        An ir_datasets id, or a folder in BEIR's layout; with or without judgments.
    """
    config = flags.config()
    check_local_path("--cross-encoder", options.cross_encoder)
    check_local_path("--sparse-encoder", options.sparse_encoder)
    from rerank.pipelines.evidence_table import limits
    from rerank.pipelines.fit import fit as fit_pipeline
    from rerank.pipelines.pipeline import Pipeline
    from rerank.pipelines.stages import RunFileStage

    config = replace(config, collection=replace(config.collection, source=collection))
    pipeline = fit_pipeline(
        config,
        Pipeline.read(options.pipeline) if options.pipeline else None,
        encoder=options.encoder,
        cross_encoder=options.cross_encoder,
        sparse_encoder=options.sparse_encoder,
        train_encoder=options.train_encoder,
        out=options.out,
        measure=options.measure,
        portable=options.portable,
        budget=milliseconds(options.budget),
        engine=options.on,
        without=options.without,
    )
    evidence, folder = pipeline.evidence, pipeline.fitted.folder
    print_result(f"{evidence}\n")
    print_result(folder)
    if any(isinstance(settings, RunFileStage) for settings in pipeline.stages.values()):
        log.info(f"next: rerank report {folder}")  # a new query is in no file
    else:
        log.info(f'next: rerank search {folder} "your query"; rerank report {folder}; rerank serve {folder}')
    log.info(limits(evidence.record))
