"""The scores of teachers as training lists: each teacher re-ranks a run, and the scores of several are averaged."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from accelerate import Accelerator

from rerank.config import Config
from rerank.data.candidates import select_candidates, standardised
from rerank.data.queries import read_queries
from rerank.data.trec import read_run, write_run
from rerank.data.types import Run
from rerank.jobs.pretraining.pseudo_lists import make_pseudo_lists
from rerank.jobs.rescore import rescore
from rerank.models.config_file import CheckpointConfig
from rerank.models.hub import encoder_folder, file_hashes
from rerank.retrieval.bm25 import search
from rerank.tasks.first_stage import find_index
from rerank.tasks.text import TextDataset
from rerank.training.device import precision_of, uses_tf32
from rerank.training.processes import exclusive, main_process_first
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.json_files import read_json
from rerank.utils.kept_hashes import kept_hash
from rerank.utils.progress import log


class Asked(NamedTuple):
    """What teachers score: a run, and the file of its queries if they are not the collection's."""

    run: Path
    queries: Path | None


def teacher_lists(
    config: Config, dataset: TextDataset, teachers: Sequence[str], template: str, pseudo: int, accelerator: Accelerator
) -> Path:
    """The file of training lists with the teachers' scores; scores what is missing.

    The teachers score the candidates of all queries of the collection, judged or not, or lists of `pseudo` queries.
    Each teacher's scores are a run of its own, which other commands take too. The scores of several are standardised
    by list and averaged. Raises UserError for a model that is given twice or adds first-stage scores to its own.
    """
    models: dict[tuple[str, ...], str] = {}  # the hashes of a teacher's files -> the teacher
    for teacher in teachers:
        files = tuple(file_hashes(teacher))
        if files in models:
            raise UserError(f"teacher {teacher}: the same model as teacher {models[files]}; expected each model once")
        models[files] = teacher
        _check_teacher(teacher, config.collection.source, accelerator.is_main_process)
    folder = dataset.folder
    with exclusive(accelerator, folder.path, "teacher scores"):  # folds may be trained in parallel
        with main_process_first(accelerator, "candidates that teachers score"):
            asked = _pseudo_queries(config, dataset, pseudo) if pseudo else _candidates(config, dataset)
        encoder, precision = config.encoder, (precision_of(accelerator), uses_tf32(accelerator))
        runs = []
        for files, teacher in models.items():
            scored = (asked.run.name, template, encoder.max_doc_tokens, encoder.pooling, *precision)
            runs.append(folder.teacher_run(short_hash(*files, *scored)))
            _score(config, teacher, template, asked, runs[-1])
            accelerator.wait_for_everyone()
        lists = folder.teacher_lists(short_hash(*sorted(run.name for run in runs)))
        if accelerator.is_main_process and not lists.is_file():
            _write_lists(lists, asked, sorted(runs))
        accelerator.wait_for_everyone()
    return lists


def _check_teacher(teacher: str, collection: str, say: bool) -> None:
    """Raises UserError for a model that adds first-stage scores; logs if it was trained on the collection."""
    config: CheckpointConfig = read_json(encoder_folder(teacher) / "config.json", CheckpointConfig, "choose another")
    saved = config.get("rerank", {})
    if weight := saved.get("first_stage_weight"):
        raise UserError(
            f"teacher {teacher}: adds the first stage's score to its own (--encoder.first-stage-weight {weight:g}), "
            "which the lists do not have; give a teacher that was trained without"
        )
    if say and saved.get("collection") == collection:
        log.info(
            f"teacher {teacher}: was trained on this collection, on judgments of queries that other folds test; "
            "measure its students on the queries that it has not seen"
        )


def _candidates(config: Config, dataset: TextDataset) -> Asked:
    """A run of all queries of the collection: also of those that the first stage leaves out, as not judged."""
    collection, first, language = dataset.collection, config.first_stage, config.collection.language
    searched = (first.index, first.depth, first.k1, first.b, language)
    file = dataset.folder.teacher_candidates(
        short_hash(kept_hash(dataset.first_stage), collection.fingerprint, *searched, *collection.queries.items())
    )
    if not file.is_file():
        others = {query_id: text for query_id, text in collection.queries.items() if query_id not in dataset.candidates}
        if not others:
            found: Run = {}
        elif first.run:
            found = read_run(dataset.first_stage)
        else:
            index = find_index(config, collection, dataset.folder)
            found = search(index, others, first.depth, first.k1, first.b, first.threads or None, language)
        candidates = {**dataset.candidates, **select_candidates(found, {}, first.depth, others)}
        _write_ranking(file, {query_id: some.doc_ids for query_id, some in candidates.items()})
    return Asked(file, None)


def _pseudo_queries(config: Config, dataset: TextDataset, count: int) -> Asked:
    """A run of `count` pseudo-queries and their file, made once; equal pseudo-queries have one list.

    A list has the pseudo-query's source and the negatives of pre-training. Nothing of a document is hidden, as a
    teacher's score says what its source is worth.
    """
    pretraining = replace(config.pretraining, steps=count, lists_per_step=1, labels="source", held_out=1)
    first, collection = config.first_stage, dataset.collection
    searched = (first.index, first.k1, first.b, config.collection.language)
    identity = short_hash(collection.fingerprint, pretraining, searched, config.training.seed)
    file = dataset.folder.pseudo_query_run(identity)
    queries = file.with_suffix(".tsv")
    if not file.is_file():
        index = find_index(config, collection, dataset.folder)
        lists, _ = make_pseudo_lists(replace(config, pretraining=pretraining), collection, index)
        by_text: dict[str, Sequence[str]] = {}
        for found in lists:
            by_text.setdefault(found.query.text, found.doc_ids)
        ranking = {f"p{number}": doc_ids for number, doc_ids in enumerate(by_text.values(), 1)}
        with atomic_write(queries) as tmp:
            lines = (f"{query_id}\t{text}\n" for query_id, text in zip(ranking, by_text, strict=True))
            tmp.write_text("".join(lines), encoding="utf-8")
        _write_ranking(file, ranking)
    return Asked(file, queries)


def _write_ranking(file: Path, ranking: dict[str, Sequence[str]]) -> None:
    """Writes lists of two documents or more as a run, in their order."""
    run = {
        query_id: {doc_id: float(-place) for place, doc_id in enumerate(doc_ids)}
        for query_id, doc_ids in ranking.items()
        if len(doc_ids) > 1
    }
    if not run:
        raise UserError(f"{file}: no query has two candidates, which a training list needs")
    write_run(file, run, "candidates", as_found=True)


def _score(config: Config, teacher: str, template: str, asked: Asked, out: Path) -> None:
    """Writes the run of a teacher; an interrupted command goes on."""
    if out.is_file():
        log.info(f"teacher {teacher}: {out} already exists")
        return
    collection = config.collection
    if asked.queries:
        collection = replace(collection, queries=str(asked.queries), query_field="")
    first_stage = replace(config.first_stage, depth=max(len(doc_ids) for doc_ids in read_run(asked.run).values()))
    encoder = replace(config.encoder, template=template)
    config = replace(config, collection=collection, first_stage=first_stage, encoder=encoder)
    rescore(config, teacher, asked.run, out)


def _write_lists(target: Path, asked: Asked, runs: Sequence[Path]) -> None:
    """Writes the training lists: the documents of a query in the order of its run, and the teachers' scores."""
    scores, texts = [read_run(run) for run in runs], read_queries(asked.queries) if asked.queries else {}
    with atomic_write(target) as tmp, tmp.open("w", encoding="utf-8") as out:
        for query_id, doc_ids in read_run(asked.run).items():
            of_teachers: list[Sequence[float]] = [[run[query_id][doc_id] for doc_id in doc_ids] for run in scores]
            if len(runs) > 1:
                of_teachers = [_standardised(some) for some in of_teachers]
            labels = [float(f"{math.fsum(some) / len(runs):.9g}") for some in zip(*of_teachers, strict=True)]
            query = {"query": texts[query_id]} if texts else {"query_id": query_id}
            out.write(json.dumps({**query, "doc_ids": list(doc_ids), "labels": labels}, ensure_ascii=False) + "\n")
    log.info(f"teachers: the scores of {len(runs)} as training lists: {target}")


def _standardised(scores: Sequence[float]) -> Sequence[float]:
    """The standardised scores of a list; 0 if all are equal but for what `write_run` puts between ties."""
    between_ties = float(np.spacing(np.float32(max(map(abs, scores)))))
    equal = max(scores) - min(scores) <= len(scores) * between_ties
    return [0.0] * len(scores) if equal else standardised(scores)
