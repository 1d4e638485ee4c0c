"""The names of BM25's runs. A name has every setting that is not the default, so that no two runs share a name."""

import re
from pathlib import Path

from rerank.config import CollectionSettings, FirstStageSettings

COLLECTION = CollectionSettings()
"""The default settings, which no name shows."""


def bm25_name(
    settings: FirstStageSettings, collection: CollectionSettings = COLLECTION, queries: str = "", drawn: str = ""
) -> str:
    """Returns "bm25" and the settings.

    A file of queries is named with `queries`, the hash of its content; `drawn` is the hash of the queries that were
    drawn.

    >>> bm25_name(FirstStageSettings(depth=100), CollectionSettings(language="de"))
    'bm25-depth=100-language=de'
    >>> bm25_name(FirstStageSettings(), CollectionSettings(queries="new/topics.tsv"), "a1b2c3d4")
    'bm25-queries=topics-a1b2c3d4'
    """
    language = "" if collection.language == COLLECTION.language else f"-language={collection.language}"
    changed = _changed(settings, ("index", "depth", "k1", "b"))
    return f"bm25{changed}{_of_queries(collection, queries, drawn)}{language}"


def _changed(settings: FirstStageSettings, names: tuple[str, ...]) -> str:
    """Those of the named settings that are not the default, as -name=value."""
    values = {name: getattr(settings, name) for name in names}
    default = FirstStageSettings()
    return "".join(f"-{name}={v}".replace("/", "_") for name, v in values.items() if v != getattr(default, name))


def _of_queries(collection: CollectionSettings, queries: str, drawn: str) -> str:
    """Which queries are searched, where they are not the collection's own."""
    parts = ""
    if collection.queries:
        stem = Path(collection.queries).name.partition(".")[0]
        parts += re.sub(r"\s", "_", f"-queries={'-'.join(filter(None, (stem, queries)))}")
    if drawn:
        parts += f"-drawn={drawn}"
    if collection.query_field:
        parts += re.sub(r"[\s/]", "_", f"-query-field={collection.query_field}")
    return parts
