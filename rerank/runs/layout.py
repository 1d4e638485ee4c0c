"""The names of files and folders inside runs/."""

from dataclasses import fields

from rerank.config import FirstStageTable


def bm25_name(table: FirstStageTable) -> str:
    """bm25, followed by every setting that is not the default, so that no two rankings share a name."""
    changed = [
        f"-{field.name}={getattr(table, field.name)}".replace("/", "_")
        for field in fields(table)
        if field.name in ("index", "depth", "k1", "b") and getattr(table, field.name) != field.default
    ]
    return "bm25" + "".join(changed)
