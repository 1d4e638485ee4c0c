"""What can be refused from the source and the fold alone, without torch."""

from collections.abc import Sequence

from rerank.data.folds import FINAL
from rerank.data.letor.layouts import is_feature_source
from rerank.utils.errors import UserError


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
