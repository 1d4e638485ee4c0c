"""The names of the runs of a first stage: BM25's, a bi-encoder's, and several runs fused into one.

A name has every setting that is not the default, so that no two rankings share a name.
"""

import re
from pathlib import Path

from rerank.config import CollectionSettings, FirstStageSettings
from rerank.utils.files import short_hash

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


def dense_name(
    settings: FirstStageSettings, collection: CollectionSettings = COLLECTION, queries: str = "", drawn: str = ""
) -> str:
    """Returns "dense", the name of the encoder, and the settings as `bm25_name` does.

    >>> dense_name(FirstStageSettings(encoder="sentence-transformers/all-MiniLM-L6-v2", depth=100))
    'dense=sentence-transformers_all-MiniLM-L6-v2-depth=100'
    >>> dense_name(FirstStageSettings(encoder="e5", feedback="runs/towns/fused.run"))
    'dense=e5-feedback=fused'
    """
    encoder = _safe(settings.encoder.strip("./"))[-100:]
    feedback = f"-feedback={_run_name(settings.feedback)}" if settings.feedback else ""
    return f"dense={encoder}{feedback}{_changed(settings, ('depth',))}{_of_queries(collection, queries, drawn)}"


def fused_name(settings: FirstStageSettings) -> str:
    """Returns the method, the names of the runs, and a hash of their paths.

    >>> fused_name(FirstStageSettings(run=("a/bm25.run", "b/dense.run.gz")))
    'fused-rrf=bm25+dense-5085db49'
    """
    names = "+".join(map(_run_name, settings.runs))
    return f"fused-{settings.fusion}={names[:160]}-{short_hash(*settings.runs)[:8]}"


def _safe(text: str) -> str:
    """The text in characters that are safe in the name of a file."""
    return re.sub(r"[^\w.=-]", "_", text)


def _run_name(run: str) -> str:
    """The start of the file's name."""
    return _safe(Path(run).name.removesuffix(".gz").removesuffix(".run"))[:40]


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
