"""What can be refused from the arguments alone, before a model is loaded or anything is retrieved."""

import os
from pathlib import Path

from rerank.config import Config
from rerank.evaluation.measures import measure_names
from rerank.retrieval.languages import check_language
from rerank.utils.errors import UserError
from rerank.utils.files import STANDARD_OUTPUT, output_target


def check_inputs(config: Config) -> None:
    """Raises UserError for an unknown validation measure, a missing file, and an output folder that cannot be one."""
    for run in config.first_stage.runs:
        if not Path(run).is_file():
            raise UserError(f"--first-stage.run {run}: no such file; expected a TREC run")
    if config.training.lists:
        check_file("--training.lists", Path(config.training.lists))
    check_path("--collection", config.collection.source)
    check_path("--collection.train", config.collection.train)
    check_path("--collection.valid", config.collection.valid)
    if config.collection.queries:
        check_file("--collection.queries", Path(config.collection.queries))
    check_language(config.collection.language)
    check_path("--first-stage.encoder", config.first_stage.encoder)
    check_path("--first-stage.index", config.first_stage.index)
    check_path("--encoder", config.encoder.name)
    check_output_folder("--output.folder", Path(config.output.folder))
    if config.training.measure != "loss":
        check_measure("--training.measure", config.training.measure)


def check_path(flag: str, value: str) -> None:
    """Raises UserError if `value` is written as a path, not as a hub name or dataset id, and nothing is there."""
    if value.startswith(("/", ".", "~")) and not Path(value).exists():
        raise UserError(f"{flag} {value}: no such file or folder")


def check_measure(flag: str, measure: str) -> None:
    """Raises UserError for an unknown measure."""
    try:
        measure_names([measure])
    except UserError as error:
        raise UserError(f"{flag} {measure}: {error}") from error


def check_file(what: str, path: Path) -> None:
    """Raises UserError if `path` is no file."""
    if path.is_dir():
        raise UserError(f"{what} {path}: is a folder, expected a file")
    if not path.is_file():
        raise UserError(f"{what} {path}: no such file")


def check_output_folder(flag: str, path: Path) -> None:
    """Raises UserError if `path` is neither a folder nor new."""
    if os.path.lexists(path) and not path.is_dir():
        raise UserError(f"{flag} {path}: is not a folder; expected a folder, or a new one, to write in")


def print_output(path: Path) -> None:
    """Prints where a command has written, unless that is standard output."""
    if output_target(path) != STANDARD_OUTPUT:
        print(os.fsencode(path).decode(errors="backslashreplace"))  # a name need not be UTF-8
