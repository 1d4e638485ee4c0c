"""`rerank mine`: training lists with hard negatives."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.config import CollectionSettings, FirstStageSettings, OutputSettings, TrainingSettings
from rerank.config.flags import Flags, only
from rerank.utils.files import check_output
from rerank.utils.parameters import FilePath, PathText, Whole, at_least
from rerank.utils.progress import print_result


@Parameter(name="*")
@dataclass(frozen=True)
class MineOptions:
    """Which documents become negatives."""

    ranks: Annotated[tuple[int, int], Parameter(negative=())] = (1, 100)
    """The first and the last rank of a negative."""
    negatives: Annotated[Whole, at_least(1)] = 7
    """Negatives of a list, at most."""
    margin: float | None = None
    """How far a negative's score is below the positive's, at least."""
    relative_margin: float | None = None
    """The same, as a share of the positive's score, such as 0.05."""
    sampling: Literal["top", "random"] = "top"
    """The best ranked negatives, or random ones among these ranks."""


@dataclass(frozen=True)
class MineFlags(Flags):
    """The settings of the collection, and of the candidates that a cross-encoder re-ranks."""

    collection: Annotated[CollectionSettings, only("collection", "queries", "query_field", "language")] = (
        CollectionSettings()
    )
    first_stage: FirstStageSettings = FirstStageSettings()
    training: Annotated[TrainingSettings, only("training", "device", "precision", "seed")] = TrainingSettings()
    output: Annotated[OutputSettings, only("output", "folder")] = OutputSettings()


def mine(
    collection: PathText,
    *,
    by: PathText,
    out: FilePath,
    options: MineOptions = MineOptions(),
    flags: MineFlags = MineFlags(),
) -> None:
    """Writes training lists with hard negatives: documents that rank high and are not relevant.

    Parameters
    ----------
    collection
        An ir_datasets id, or a folder in BEIR's layout, with judgments.
    by
        What ranks the documents: a run file, a fitted pipeline, or a cross-encoder.
    out
        The file of training lists to write.
    """
    check_output(out)
    config = flags.config()
    config = replace(config, collection=replace(config.collection, source=collection))
    from rerank.experiments.mine import Mining, mine_lists
    from rerank.pipelines.folder import is_pipeline
    from rerank.pipelines.score import rank_judged

    margins = options.margin, options.relative_margin
    mining = Mining(*options.ranks, options.negatives, *margins, options.sampling, config.training.seed)
    ranking = rank_judged(Path(by), config) if is_pipeline(Path(by)) else by
    print_result(mine_lists(config, ranking, mining, out))
