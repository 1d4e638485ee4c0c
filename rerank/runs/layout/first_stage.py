"""The names of the runs of a first stage: BM25's, and several runs fused into one."""

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
    changed = [
        f"-{field.name}={getattr(settings, field.name)}".replace("/", "_")
        for field in fields(settings)
        if field.name in ("index", "depth", "k1", "b") and getattr(settings, field.name) != field.default
    ]
    if collection.queries:
        stem = Path(collection.queries).name.partition(".")[0]
        changed.append(re.sub(r"\s", "_", f"-queries={'-'.join(filter(None, (stem, queries)))}"))
    if drawn:
        changed.append(f"-drawn={drawn}")
    if collection.query_field:
        changed.append(re.sub(r"[\s/]", "_", f"-query-field={collection.query_field}"))
    if collection.language != COLLECTION.language:
        changed.append(f"-language={collection.language}")
    return "bm25" + "".join(changed)


def fused_name(settings: FirstStageSettings) -> str:
    """Returns the method, the names of the runs, and a hash of their paths.

    >>> fused_name(FirstStageSettings(run=("a/bm25.run", "b/dense.run.gz")))
    'fused-rrf=bm25+dense-5085db49'
    """
    names = "+".join(
        re.sub(r"[^\w.=-]", "_", Path(run).name.removesuffix(".gz").removesuffix(".run"))[:40] for run in settings.runs
    )
    return f"fused-{settings.fusion}={names[:160]}-{short_hash(*settings.runs)[:8]}"
