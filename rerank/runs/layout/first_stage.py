"""The names of the runs of a first stage: BM25's, a bi-encoder's, and several runs fused into one."""

import re
from dataclasses import fields
from pathlib import Path

from rerank.config import CollectionSettings, FirstStageSettings
from rerank.utils.files import short_hash

COLLECTION = CollectionSettings()
"""The default settings, which no name shows."""


def bm25_name(
    settings: FirstStageSettings, collection: CollectionSettings = COLLECTION, queries: str = "", drawn: str = ""
) -> str:
    """Returns "bm25" and every setting that is not the default, so that no two rankings share a name.

    A file of queries is named with `queries`, the hash of its content; `drawn` is that of some of the queries alone.

    >>> bm25_name(FirstStageSettings(depth=100), CollectionSettings(language="de"))
    'bm25-depth=100-language=de'
    >>> bm25_name(FirstStageSettings(), CollectionSettings(queries="new/topics.tsv"), "a1b2c3d4")
    'bm25-queries=topics-a1b2c3d4'
    """
    changed = _changed(settings, ("index", "depth", "k1", "b")) + _of_queries(collection, queries, drawn)
    if collection.language != COLLECTION.language:
        changed += f"-language={collection.language}"
    return f"bm25{changed}"


def dense_name(
    settings: FirstStageSettings, collection: CollectionSettings = COLLECTION, queries: str = "", drawn: str = ""
) -> str:
    """Returns "dense", the name of the encoder, and the settings as `bm25_name` does.

    >>> dense_name(FirstStageSettings(encoder="sentence-transformers/all-MiniLM-L6-v2", depth=100))
    'dense=sentence-transformers_all-MiniLM-L6-v2-depth=100'
    >>> dense_name(FirstStageSettings(encoder="e5", feedback="runs/towns/fused.run"))
    'dense=e5-feedback=fused'
    """
    encoder = re.sub(r"[^\w.=-]", "_", settings.encoder.strip("./"))[-100:]
    feedback = f"-feedback={_run_name(settings.feedback)}" if settings.feedback else ""
    return f"dense={encoder}{feedback}{_changed(settings, ('depth',))}{_of_queries(collection, queries, drawn)}"


def fused_name(settings: FirstStageSettings) -> str:
    """Returns the method, the names of the runs, and a hash of their paths.

    >>> fused_name(FirstStageSettings(run=("a/bm25.run", "b/dense.run.gz")))
    'fused-rrf=bm25+dense-5085db49'
    """
    names = "+".join(map(_run_name, settings.runs))
    return f"fused-{settings.fusion}={names[:160]}-{short_hash(*settings.runs)[:8]}"


def _run_name(run: str) -> str:
    """The start of the file's name, in characters that are safe in a name."""
    return re.sub(r"[^\w.=-]", "_", Path(run).name.removesuffix(".gz").removesuffix(".run"))[:40]


def _changed(settings: FirstStageSettings, names: tuple[str, ...]) -> str:
    """Those of the named settings that are not the default."""
    return "".join(
        f"-{field.name}={getattr(settings, field.name)}".replace("/", "_")
        for field in fields(settings)
        if field.name in names and getattr(settings, field.name) != field.default
    )


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
