"""ir_datasets itself: imported on first use, read without its log, where its files are, and its errors in one line.

ir_datasets takes half a second to import, so only functions import it.
"""

import contextlib
import functools
import logging
from collections.abc import Iterator
from glob import glob  # unlike Path.glob, it follows links to folders
from pathlib import Path
from typing import Any, NamedTuple

from rerank.utils.errors import UserError
from rerank.utils.progress import progress
from rerank.utils.quiet import quiet

VALID = ("dev", "valid", "val", "validation")
"""How ids end whose queries validate."""


@functools.cache
def library() -> Any:
    """The module ir_datasets."""
    import ir_datasets

    return ir_datasets


@contextlib.contextmanager
def _our_progress() -> Iterator[None]:
    """Within the block ir_datasets logs nothing and has our progress bar."""
    logs = library().log
    logs.easy().logger()  # makes the logger, with a level and a handler of its own
    bar = logs.Logger.pbar
    logs.Logger.pbar = lambda _, items, *__, total=None, **___: progress(items, total or 0, "documents read")
    try:
        with quiet("ir_datasets", level=logging.CRITICAL):
            yield
    finally:
        logs.Logger.pbar = bar


def published_split(source: str) -> dict[str, str]:
    """The ids with the training, test and, if there are any, validation queries of an id; {} without a split."""
    registry = library().registry

    def judged(*names: str) -> str | None:
        ids = (f"{source}/{name}" for name in names)
        return next(
            (id_ for id_ in ids if id_ in registry and registry[id_].has_queries() and registry[id_].has_qrels()), None
        )

    if source not in registry or (train := judged("train", "training")) is None:
        return {}
    valid, test = judged(*VALID), judged("test")
    if test is None:
        valid, test = None, valid
    parts = {"train": train, "valid": valid, "test": test}
    return {} if test is None else {part: id_ for part, id_ in parts.items() if id_ is not None}


class Files(NamedTuple):
    """The files of a handler of ir_datasets; None for what it does not have.

    download: where its file comes from; path: where the file is or will be; globs, number: the files that a complete
    copy of the documents has; parser: reads the documents of an open file.
    """

    download: Any
    path: Any
    globs: list[str] | None
    number: int | None
    parser: Any


def files_of(handler: Any, part: str = "docs") -> Files:
    """The only place that reads private attributes of ir_datasets: messages say less if a release renames them."""
    download = getattr(handler, f"_{part}_dlc", None)
    names = ("_path_globs", "_expected_file_count", "_parser")
    return Files(download, getattr(download, "_cache_path", None), *(getattr(handler, name, None) for name in names))


def own_copy(files: Files) -> Path | None:
    """Where ir_datasets looks for documents that everybody must get from their owner; None if it downloads them."""
    util, download = library().util, files.download
    if isinstance(download, util.Download) and all(isinstance(m, util.LocalDownload) for m in download.mirrors):
        return Path(download.path(force=False))
    return None


def is_complete(files: Files, place: Path) -> bool:
    """Whether the user's own copy is at this place. Raises UserError if some of its files are missing."""
    if not place.exists():
        return False
    if files.globs and place.is_dir() and files.number:
        count = sum(len(glob(str(place / pattern), recursive=True)) for pattern in files.globs)  # noqa: PTH207
        if count != files.number:
            raise UserError(f"{place}: found {count} files of the collection; {describe_copy(files, place)}")
    return True


def describe_copy(files: Files, place: Path | None) -> str:
    """What a complete copy of the documents looks like, for messages."""
    tree = (
        f", with {files.number or 'the'} files that match {', '.join(files.globs)}, uncompressed" if files.globs else ""
    )
    return f"expected {place}{tree}"


@contextlib.contextmanager
def error_in_one_line(source: str, part: str, handler: Any) -> Iterator[None]:
    """Raises UserError if ir_datasets cannot read or download the "docs", "queries" or "qrels" of a handler."""
    try:
        with _our_progress():
            yield
    except (OSError, RuntimeError, EOFError, ValueError, AssertionError) as error:
        place = files_of(handler, part).path or library().util.home_path()
        name = "documents" if part == "docs" else part
        raise UserError(
            f"{source}: its {name} cannot be had: looked for {place}, then {_reason(error)}; "
            f"connect to the network once, or put the file there (IR_DATASETS_HOME moves the folder)"
        ) from error


def _reason(error: BaseException) -> str:
    if len(error.args) == 2 and isinstance(error.args[1], list):  # one error for each mirror that was tried
        error = error.args[1][-1][1]
    if type(error).__module__.startswith("requests"):
        return f"the download failed ({type(error).__name__}: no network?)"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
