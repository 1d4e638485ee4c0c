"""ir_datasets itself: imported on first use, read without its log, where its files are, and its errors in one line.

ir_datasets takes half a second to import, so only functions import it.
"""

import contextlib
import functools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rerank.utils.errors import UserError
from rerank.utils.progress import progress, quiet

VALID = ("dev", "valid", "val", "validation")
"""How ids end whose queries validate."""


@functools.cache
def library() -> Any:
    """The module ir_datasets."""
    import ir_datasets

    return ir_datasets


def published_split(source: str) -> dict[str, str]:
    """The ids with the training, test and, if there are any, validation queries of an id; {} without a split."""
    registry = library().registry

    def judged(*names: str) -> str | None:
        ids = [f"{source}/{name}" for name in names if f"{source}/{name}" in registry]
        return next((id_ for id_ in ids if registry[id_].has_queries() and registry[id_].has_qrels()), None)

    train, valid, test = judged("train", "training"), judged(*VALID), judged("test")
    if test is None:
        valid, test = None, valid
    parts = {"train": train, "valid": valid, "test": test}
    return {part: id_ for part, id_ in parts.items() if id_} if source in registry and train and test else {}


def missing_documents(handler: Any) -> str:
    """What must be put where, if the documents come from their owner alone and are not on this machine; else "".

    Reads private attributes of ir_datasets: the message says less if a release renames them.
    """
    util, download = library().util, getattr(handler, "_docs_dlc", None)
    if not isinstance(download, util.Download) or not all(isinstance(m, util.LocalDownload) for m in download.mirrors):
        return ""  # it can be downloaded
    built = getattr(handler.docs_store(), "built", None)
    place = Path(download.path(force=False))
    globs, number = getattr(handler, "_path_globs", None), getattr(handler, "_expected_file_count", None)
    files = f", with {number or 'the'} files that match {', '.join(globs)}, uncompressed" if globs else ""
    return "" if (built and built()) or place.exists() else f"expected {place}{files}"


@contextlib.contextmanager
def error_in_one_line(source: str, part: str, handler: Any) -> Iterator[None]:
    """Raises UserError if ir_datasets cannot read or download the "docs", "queries" or "qrels" of a handler.

    Within the block ir_datasets logs nothing and has our progress bar.
    """
    logs = library().log
    logs.easy().logger()  # makes the logger, with a level and a handler of its own
    bar = logs.Logger.pbar
    logs.Logger.pbar = lambda _, items, *__, total=None, **___: progress(items, total or 0, "documents read")
    try:
        with quiet("ir_datasets", level=logging.CRITICAL):
            yield
    except (OSError, RuntimeError, EOFError, ValueError, AssertionError) as error:
        place = getattr(getattr(handler, f"_{part}_dlc", None), "_cache_path", None) or library().util.home_path()
        name = "documents" if part == "docs" else part
        raise UserError(
            f"{source}: its {name} cannot be read: {_reason(error)}; connect to the network once, or put the file at "
            f"{place} (IR_DATASETS_HOME moves the folder)"
        ) from error
    finally:
        logs.Logger.pbar = bar


def _reason(error: BaseException) -> str:
    if len(error.args) == 2 and isinstance(error.args[1], list):  # one error for each mirror that was tried
        error = error.args[1][-1][1]
    if type(error).__module__.startswith("requests"):
        return f"the download failed ({type(error).__name__}: no network?)"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
