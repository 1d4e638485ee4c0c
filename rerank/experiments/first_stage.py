"""The first stage of an experiment: a run that was given, or BM25's, retrieved once."""

import json
from pathlib import Path

from rerank.config import Config, FirstStageSettings, validate
from rerank.data.collections import Collection, open_collection
from rerank.data.letor.layouts import is_feature_source
from rerank.data.trec import write_run
from rerank.errors import UserError
from rerank.retrieval.bm25 import choose_index, search
from rerank.retrieval.indexed_texts import IndexedTexts
from rerank.runs.layout import bm25_name
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.progress import log


def first_stage_run(config: Config, collection: Collection, folder: Path) -> Path:
    """The run to re-rank: the one that was given, else BM25's, retrieved if it is not in `folder` yet."""
    table = config.first_stage
    if table.run:
        return Path(table.run)
    file = folder / f"{bm25_name(table)}.run"
    origin = file.with_suffix(".json")
    searched = {"documents": collection.fingerprint, "queries": short_hash(*collection.queries.items())}
    if file.exists():
        if not origin.exists() or json.loads(origin.read_text(encoding="utf-8")) != searched:
            raise UserError(
                f"{file}: retrieved from other documents or queries than those of {collection.source}; remove it to "
                "retrieve again, or take another --output.folder"
            )
    else:
        index = _index(table, collection, folder)
        run = search(index, collection.queries, table.depth, table.k1, table.b, table.threads or None)
        with atomic_write(origin) as tmp:
            tmp.write_text(json.dumps(searched), encoding="utf-8")
        write_run(file, run, "Anserini", as_found=True)
        log.info(f"BM25 of {len(run)} queries, {sum(map(len, run.values()))} candidates: {file}")
    return file


def _index(table: FirstStageSettings, collection: Collection, folder: Path) -> Path:
    try:
        return choose_index(table.index, collection, folder / "index", table.threads or None)
    except UserError as no_index:
        if collection.has_documents:
            raise
        try:  # without the documents there could be no other index: say what is missing of both
            next(collection.documents())
        except UserError as no_documents:
            raise UserError(f"{no_documents}; and {no_index}") from no_index
        raise


def documents_and_index(config: Config) -> tuple[Collection, Path]:
    """The documents of the collection, and an index of them; no query, judgment or fold is read.

    Raises UserError for what the user can mend.
    """
    validate(config)
    expect_text(config.collection.source)
    collection = open_collection(config.collection.source)
    index = _index(config.first_stage, collection, Path(config.output.folder) / collection.name)
    return (collection if collection.has_documents else IndexedTexts(collection, index)), index


def expect_text(source: str) -> None:
    """Raises UserError for a feature set: what it has instead of documents cannot be searched or read."""
    if is_feature_source(source):
        raise UserError(
            f"{source}: holds feature vectors, no text: there is nothing to retrieve, to pre-train on or to score "
            "again; `rerank train` trains on them and writes the runs"
        )
