"""Ids of ir_datasets that a test makes: documents, queries and judgments in small files."""

from pathlib import Path

import pytest

from rerank.data.collections.irds import library

DOCUMENTS = {f"d{number}": f"text {number}" for number in range(40)}


def write_ids(
    monkeypatch: pytest.MonkeyPatch, folder: Path, ids: dict[str, dict[str, list[str]]], documents: dict | None = None
) -> None:
    """Registers ids with the documents of a file in `folder`; an id has judgments of those documents by query.

    An id without queries has documents alone. All ids of a call share the documents, which is what ir_datasets tells by
    the object that reads them.
    """
    folder.mkdir(exist_ok=True)
    irds = library()
    local, formats = irds.util.LocalDownload, irds.formats
    lines = "".join(f"{doc_id}\t{text}\n" for doc_id, text in (documents or DOCUMENTS).items())
    (folder / "docs.tsv").write_text(lines)
    docs = formats.TsvDocs(local(folder / "docs.tsv"))
    registered = dict(irds.registry._registered)
    for id_, judged in ids.items():
        parts = [docs]
        if judged:
            stem = folder / id_.replace("/", "-")
            queries, qrels = stem.with_suffix(".tsv"), stem.with_suffix(".qrels")
            queries.write_text("".join(f"{query_id}\tquery {query_id}\n" for query_id in judged))
            qrels.write_text("".join(f"{q} 0 {doc_id} 1\n" for q, doc_ids in judged.items() for doc_id in doc_ids))
            parts += [formats.TsvQueries(local(queries)), formats.TrecQrels(local(qrels), {})]
        registered[id_] = irds.datasets.base.Dataset(*parts)
    monkeypatch.setattr(irds.registry, "_registered", registered)
