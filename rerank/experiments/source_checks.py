"""What can be refused from the source, the first stage and the fold alone, without torch."""

from collections.abc import Sequence
from pathlib import Path

from rerank.config import Config
from rerank.data.folds import FINAL
from rerank.data.letor.layouts import is_feature_source
from rerank.runs.fuse_files import expect_several
from rerank.utils.errors import UserError


def check_first_stage(config: Config) -> None:
    """Raises UserError if the settings name a run to re-rank that does not exist, or one that cannot be fused."""
    settings = config.first_stage
    for run in settings.runs:
        if not Path(run).is_file():
            raise UserError(f"--first-stage.run {run}: no such file; expected a TREC run, or nothing for BM25")
    if settings.runs and settings.encoder:
        raise UserError(
            f"--first-stage.encoder {settings.encoder}: of no effect with --first-stage.run; give one of them, or the "
            "encoder's run, which `rerank retrieve` writes, among the runs"
        )
    if settings.feedback and not settings.encoder:
        raise UserError(
            f"--first-stage.feedback {settings.feedback}: moves the vectors of queries, so it needs a bi-encoder, "
            "--first-stage.encoder; leave it out, or give both"
        )
    if settings.feedback and not Path(settings.feedback).is_file():
        raise UserError(f"--first-stage.feedback {settings.feedback}: no such file; expected a TREC run")
    if len(settings.runs) > 1:
        expect_several([Path(run) for run in settings.runs], "--first-stage.run")
    elif settings.fusion != "rrf":
        raise UserError(
            f"--first-stage.fusion {settings.fusion}: expected several runs in --first-stage.run, "
            f"got {len(settings.runs)}"
        )


def check_fold(name: str, names: Sequence[str]) -> None:
    """Raises UserError if `name` is none of the names of the folds, and neither "all" nor "final"."""
    if name not in (*names, "all", FINAL):
        raise UserError(f"fold {name}: no such fold; expected {', '.join(names)}, all or {FINAL}")


def expect_text(source: str) -> None:
    """Raises UserError for feature vectors, which can be neither searched nor read."""
    if is_feature_source(source):
        raise UserError(
            f"{source}: holds feature vectors, no text: there is nothing to retrieve, to pre-train on or to score "
            "again; `rerank train` trains on them and writes the runs"
        )
