"""`rerank score`: ranks queries with a pipeline, or re-ranks any run with a trained model."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rerank.cli.arguments import QUERIES, Model, NamedCollection, RankingFlags
from rerank.config import FirstStageSettings, TrainingSettings
from rerank.config.flags import only
from rerank.utils.cluster import LOCAL, Engine
from rerank.utils.errors import UserError
from rerank.utils.parameters import FilePath, OptionalPath, Whole, at_least
from rerank.utils.progress import print_result


@dataclass(frozen=True)
class ScoreFlags(RankingFlags):
    """The settings of a command that ranks many queries."""

    collection: Annotated[NamedCollection, only("collection", *QUERIES)] = NamedCollection()
    first_stage: Annotated[FirstStageSettings, only("first_stage", "index", "k1", "b", "threads")] = (
        FirstStageSettings()
    )
    training: Annotated[TrainingSettings, only("training", "device", "precision", "tf32", "max_tokens_per_forward")] = (
        TrainingSettings()
    )


@Parameter(name="*")
@dataclass(frozen=True)
class ScoreOptions:
    """How a run is scored."""

    depth: Annotated[Whole | None, at_least(1), Parameter(name=("--depth", "--first-stage.depth"))] = None
    """Candidates per query; default: as many as the checkpoint was trained with, 150 if it does not say."""
    parts: Annotated[Whole | None, at_least(1)] = None
    """Parts of about equal size; default: up to 100. An interrupted command resumes after the last part."""
    on: Engine = LOCAL
    """Where the parts are scored: local, ray (of this machine, or RAY_ADDRESS), or ray://HOST:10001."""


def score(
    model: Model,
    run: OptionalPath = None,
    *,
    out: FilePath,
    options: ScoreOptions = ScoreOptions(),
    flags: ScoreFlags = ScoreFlags(),
) -> None:
    """Ranks queries with a fitted pipeline, re-ranks a run with a cross-encoder, or scores a file of feature vectors.

    Parameters
    ----------
    run
        The TREC run that a cross-encoder re-ranks; without it, BM25 retrieves first.
    out
        The TREC run to write, and its manifest.
    """
    config, depth, parts, on = flags.config(), options.depth, options.parts, options.on
    if depth:
        config = replace(config, first_stage=replace(config.first_stage, depth=depth))
    of_a_run = {str(run): run, "--parts": parts, f"--on {on}": on != LOCAL}
    from rerank.pipelines.folder import is_pipeline

    if is_pipeline(Path(model)):
        _expect_none_given(of_a_run, "a pipeline, which retrieves and ranks queries")
        from rerank.pipelines.score import score_queries

        print_result(score_queries(config, Path(model), out))
        return
    from rerank.models.feature_mlp import is_feature_mlp

    if is_feature_mlp(Path(model)):
        given = {**of_a_run, "--depth": depth}
        _expect_none_given(given, "a model of feature vectors, which scores all documents of a file")
        from rerank.experiments.score_features import score_feature_file

        print_result(score_feature_file(config, Path(model), out))
        return
    from rerank.experiments.score import expect_scorable, rescore
    from rerank.experiments.scorer import recorded_depth

    expect_scorable(config, run, out, on)  # before the model is read, or downloaded
    if not depth:
        config = replace(config, first_stage=replace(config.first_stage, depth=recorded_depth(model)))
    if not rescore(config, model, run, out, parts, on):
        sys.exit(1)
    print_result(out)


def _expect_none_given(given: Mapping[str, object], model: str) -> None:
    """Raises UserError for an argument or a flag with a value: it has no effect with this kind of model."""
    for what, value in given.items():
        if value:
            raise UserError(f"{what}: has no effect with {model}; leave it out")
