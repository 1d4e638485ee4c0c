"""Collection -> first stage -> candidates and folds: what all experiments share, kept on disk for `rerank eval`."""

import json
from dataclasses import dataclass, fields
from pathlib import Path

from rerank.candidates import candidates
from rerank.collection import Collection, open_collection, open_documents
from rerank.config import Config, FirstStageTable
from rerank.errors import UserError
from rerank.files import replacing, short_hash
from rerank.first_stage import choose_index, retrieve, with_texts_from_index
from rerank.folds import make_folds, prescribed_folds, read_folds, write_folds
from rerank.letor.source import is_feature_source
from rerank.progress import say
from rerank.settings import check
from rerank.trec import read_run, write_qrels, write_run
from rerank.types import Candidates, Fold, Qrels


@dataclass(frozen=True)
class Prepared:
    """`folder` is runs/<collection>; `run` is the first stage's file, `candidates` what it found for every query."""

    folder: Path
    collection: Collection
    run: Path
    candidates: dict[str, Candidates]
    folds: list[Fold]

    @property
    def qrels(self) -> Qrels:
        """All judgments of the collection."""
        return self.collection.qrels


def prepare(config: Config) -> Prepared:
    """Opens the collection, and retrieves the first stage unless it is there.

    Raises UserError for what the user can mend.
    """
    check(config)
    expect_text(config.collection.source)
    collection = open_collection(config.collection.source)
    folder = Path(config.output.folder) / collection.name
    run_file = first_stage_run(config, collection, folder)
    found = candidates(read_run(run_file), collection.qrels, config.first_stage.depth, collection.queries)
    if not collection.has_documents:
        collection = with_texts_from_index(collection, _index(config.first_stage, collection, folder))
    return Prepared(folder, collection, run_file, found, _folds(config, collection))


def documents_and_index(config: Config) -> tuple[Collection, Path]:
    """The documents of the collection, and an index of them; no query, judgment or fold is read.

    Raises UserError for what the user can mend.
    """
    check(config)
    expect_text(config.collection.source)
    collection = open_documents(config.collection.source)
    index = _index(config.first_stage, collection, Path(config.output.folder) / collection.name)
    return (collection if collection.has_documents else with_texts_from_index(collection, index)), index


def expect_text(source: str) -> None:
    """Raises UserError for a feature set: what it has instead of documents cannot be searched or read."""
    if is_feature_source(source):
        raise UserError(
            f"{source}: holds feature vectors, no text: there is nothing to retrieve, to warm up on or to score again; "
            "`rerank train` trains on them and writes the runs"
        )


def keep_for_evaluation(prepared: Prepared) -> None:
    """Writes the judgments and the folds where `rerank eval` looks for them.

    Raises UserError where experiments with other folds lie in the same folder.
    """
    path = prepared.folder / "folds.json"
    if path.exists() and any(prepared.folder.glob("*/fold*/test.run")) and read_folds(path) != prepared.folds:
        raise UserError(
            f"{path}: the experiments here have other folds ({len(read_folds(path))}, now {len(prepared.folds)}); "
            "keep --collection.folds, or take another --output.folder"
        )
    write_qrels(prepared.folder / "qrels.txt", prepared.qrels)
    write_folds(path, prepared.folds)


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
        run = retrieve(index, collection.queries, table.depth, table.k1, table.b, table.threads or None)
        with replacing(origin) as aside:
            aside.write_text(json.dumps(searched), encoding="utf-8")
        write_run(file, run, "Anserini", as_found=True)
        say(f"BM25 of {len(run)} queries, {sum(map(len, run.values()))} candidates: {file}")
    return file


def _index(table: FirstStageTable, collection: Collection, folder: Path) -> Path:
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


def bm25_name(table: FirstStageTable) -> str:
    """bm25, followed by every setting that is not the default, so that no two rankings share a name."""
    changed = [
        f"-{field.name}={getattr(table, field.name)}".replace("/", "_")
        for field in fields(table)
        if field.name in ("index", "depth", "k1", "b") and getattr(table, field.name) != field.default
    ]
    return "bm25" + "".join(changed)


def _folds(config: Config, collection: Collection) -> list[Fold]:
    if collection.prescribed_folds:
        return prescribed_folds([(name.removeprefix("fold"), ids) for name, ids in collection.prescribed_folds])
    return make_folds([q for q in collection.queries if q in collection.qrels], config.collection.folds)
