"""Settings that were given and have no effect, as a line of the log."""

from collections.abc import Iterable

from rerank.config import Config, flag_name, sections
from rerank.utils.progress import log

RETRIEVAL = ("collection.language", "first_stage.k1", "first_stage.b", "first_stage.threads")
"""What BM25's retrieval alone reads."""


def say_unused(config: Config, names: Iterable[str], reason: str) -> None:
    """Logs the flags of those of these settings, `section.key`, that are not the default, as of no effect."""
    given, default = sections(config), sections(Config())
    keys = [name.split(".") for name in names]
    unused = [flag_name(section, key) for section, key in keys if given[section][key] != default[section][key]]
    if unused:
        log.info(f"{', '.join(unused)}: of no effect{reason}")


def say_unused_by_first_stage(config: Config) -> None:
    """Logs the settings of BM25's retrieval, if the first stage is a bi-encoder's or a given run."""
    settings = config.first_stage
    if not settings.is_bm25:
        say_unused(config, RETRIEVAL, ", as the runs are given" if settings.runs else f" with {settings.encoder}")
