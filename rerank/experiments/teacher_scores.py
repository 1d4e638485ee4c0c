"""The scores that teachers give to lists, in a file of training lists: those of one teacher, or the mean of several."""

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from rerank.config import Config, sections
from rerank.data.candidates import select_candidates, standardised
from rerank.data.trec import read_run
from rerank.data.types import Candidates, Run
from rerank.experiments.dense_first_stage import search_dense
from rerank.experiments.first_stage import find_index
from rerank.experiments.text import TextDataset
from rerank.experiments.text_model import truncation_summary
from rerank.models.checkpoints import open_trained_cross_encoder, saved_settings
from rerank.models.hub import file_hashes
from rerank.models.memory import open_budget
from rerank.models.scoring import score_candidates
from rerank.retrieval.bm25 import search
from rerank.runs.layout import CollectionFolder
from rerank.runs.manifest import write_manifest
from rerank.training.device import arithmetic, device_name, precision_facts, uses_tf32
from rerank.training.processes import exclusive, main_process_first
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, file_hash, short_hash
from rerank.utils.json_files import read_json_lines
from rerank.utils.kept_hashes import kept_hash
from rerank.utils.progress import log

PART = 64
"""Queries whose scores are written together: what an interrupted command loses at most."""


def teacher_lists(
    config: Config, dataset: TextDataset, teachers: Sequence[str], template: str, accelerator: Accelerator
) -> Path:
    """The file of training lists with the teachers' scores of all candidates; scores what is missing.

    Each teacher's scores are a file of their own, which other commands take too: its name is a hash of the teacher's
    files, its template, the precision of the run, and what determines the candidates and their texts. Of several
    teachers the scores of a list are standardised and averaged. Raises UserError for a model that is given twice.
    """
    models: dict[tuple[str, ...], str] = {}  # the hashes of a teacher's files -> the teacher
    for teacher in teachers:
        files = tuple(file_hashes(teacher))
        if files in models:
            raise UserError(f"teacher {teacher}: the same model as teacher {models[files]}; expected each model once")
        models[files] = teacher
    paths = [_scored_by(config, dataset, teacher, files, template, accelerator) for files, teacher in models.items()]
    return paths[0] if len(paths) == 1 else _mean_of(dataset.folder, teachers, paths, accelerator)


def _scored_by(
    config: Config,
    dataset: TextDataset,
    teacher: str,
    files: Sequence[str],
    template: str,
    accelerator: Accelerator,
) -> Path:
    """The file with the scores of one teacher; `files` are the hashes of its files."""
    identity = _identity(config, dataset, files, template, accelerator)
    folder = dataset.folder
    path = folder.teacher_lists(identity)
    with exclusive(accelerator, folder.path, "teacher scores"):  # folds may be trained in parallel
        if not path.is_file():
            _score_all(config, dataset, teacher, template, identity, accelerator)
        elif accelerator.is_main_process:
            log.info(f"teacher: {path} already exists")
    accelerator.free_memory()
    return path


def _mean_of(
    folder: CollectionFolder, teachers: Sequence[str], paths: Sequence[Path], accelerator: Accelerator
) -> Path:
    """The file with the mean of the standardised scores of several teachers, whose order does not matter."""
    identity = short_hash(*sorted(path.name for path in paths))
    target = folder.teacher_lists(identity)
    with exclusive(accelerator, folder.path, "teacher scores"):
        if accelerator.is_main_process and not target.is_file():
            scores = {path.name: file_hash(path) for path in sorted(paths)}
            write_manifest(folder.teacher_manifest(identity), {"teachers": list(teachers), "scores": scores})
            with atomic_write(target) as tmp, tmp.open("w", encoding="utf-8") as out:
                for record in _mean_records(sorted(paths)):
                    out.write(json.dumps(record, ensure_ascii=False) + "\n")
            log.info(f"teacher: the mean of {len(paths)} teachers' standardised scores: {target}")
        accelerator.wait_for_everyone()
    return target


def _mean_records(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The lists of the files, which are the same, with the means of their standardised labels."""
    files = [read_json_lines(path, dict[str, Any], "remove it and run again") for path in paths]
    for records in zip(*files, strict=True):
        labels = [standardised(record["labels"]) for record in records]
        means = [float(f"{math.fsum(of_document) / len(paths):.9g}") for of_document in zip(*labels, strict=True)]
        yield records[0] | {"labels": means}


def _identity(
    config: Config, dataset: TextDataset, files: Sequence[str], template: str, accelerator: Accelerator
) -> str:
    """A hash of everything that the teacher's scores depend on."""
    first, encoder, collection = config.first_stage, config.encoder, dataset.collection
    if dataset.lists:
        scored: tuple[object, ...] = (dataset.lists.sha256, collection.fingerprint)
    else:
        retrieved = (kept_hash(dataset.first_stage), first.index, first.depth, first.k1, first.b)
        scored = (retrieved, collection.fingerprint, *collection.queries.items())
    return short_hash(
        *files,
        (template, config.collection.language),
        (encoder.max_doc_tokens, encoder.pooling, accelerator.mixed_precision),
        *scored,
        *(("tf32",) if uses_tf32(accelerator) else ()),
    )


def _lists_to_score(config: Config, dataset: TextDataset) -> tuple[TextDataset, list[Candidates]]:
    """The data set whose passages are scored, and the lists: those of its file, or the candidates of all queries."""
    if dataset.lists:
        return dataset, dataset.lists.lists
    dataset = replace(dataset, candidates=_all_candidates(config, dataset))
    lists = [candidates for candidates in dataset.candidates.values() if len(candidates.doc_ids) > 1]
    if not lists:
        raise UserError(f"{dataset.first_stage}: no query has two candidates, which a training list needs")
    return dataset, lists


def _all_candidates(config: Config, dataset: TextDataset) -> dict[str, Candidates]:
    """The candidates of all queries of the collection: also of those that the data set leaves out, as not judged."""
    queries, first = dataset.collection.queries, config.first_stage
    others = {query_id: text for query_id, text in queries.items() if query_id not in dataset.candidates}
    run: Run = {}
    if others and first.runs:
        run = read_run(dataset.first_stage)
    elif others and first.encoder:
        run = search_dense(config, dataset.collection, dataset.folder, others)
    elif others:
        index, threads = find_index(config, dataset.collection, dataset.folder), first.threads or None
        run = search(index, others, first.depth, first.k1, first.b, threads, config.collection.language)
    return {**dataset.candidates, **select_candidates(run, {}, first.depth, others)}


def _score_all(
    config: Config, dataset: TextDataset, teacher: str, template: str, identity: str, accelerator: Accelerator
) -> None:
    """Scores part by part; the parts that an interrupted command has written are kept."""
    folder = dataset.folder
    model, tokenizer, max_length, max_doc_tokens = open_trained_cross_encoder(
        teacher, config.encoder.pooling, config.encoder.max_doc_tokens, template
    )
    if model.first_stage_weight:
        raise UserError(
            f"teacher {teacher}: adds the first stage's score to its own (--encoder.first-stage-weight "
            f"{model.first_stage_weight:g}), and the lists have none; give a teacher that was trained without"
        )
    for line in model.place(accelerator.device, accelerator.autocast):
        if accelerator.is_main_process:
            log.info(line)
    config = replace(config, encoder=replace(config.encoder, max_doc_tokens=max_doc_tokens))
    with main_process_first(accelerator, "candidates and tokens of the documents"):
        dataset, lists = _lists_to_score(config, replace(dataset, config=config))
        passages = dataset.passages(tokenizer, max_length, model.template, model.splitting)
    pairs = sum(len(candidates.doc_ids) for candidates in lists)
    what = "pseudo-queries" if dataset.lists else "queries"
    if accelerator.is_main_process:
        log.info(truncation_summary(passages, max_doc_tokens))
        log.info(f"teacher: {teacher} scores {pairs} candidates of {len(lists)} {what} on {accelerator.device}")
        if saved_settings(model).get("collection") == dataset.collection.source:
            log.info(
                f"teacher: {teacher} was trained on this collection, on judgments of queries that other folds test: "
                "measure its students on the queries that it has not seen"
            )
    memory = open_budget(config.training.max_tokens_per_forward, accelerator.device)
    parts = [folder.teacher_parts(identity) / f"{first}.jsonl" for first in range(0, len(lists), PART)]
    for number, part in enumerate(parts):
        if not part.is_file():
            chunk = lists[number * PART : (number + 1) * PART]
            step = f"teacher, part {number + 1} of {len(parts)}"
            run = score_candidates(model, passages, chunk, accelerator, memory, step)
            if accelerator.is_main_process:
                _write_part(part, chunk, run, dataset.lists.queries if dataset.lists else {})
        accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        facts = {
            "teacher": teacher,
            "template": model.template,
            "files": file_hashes(teacher),
            "config": sections(config),
            what.replace("-", "_"): len(lists),
            "candidates": pairs,
            "documents": {"fingerprint": dataset.collection.fingerprint, "tokens": passages.documents.sha256()},
            **_origin(dataset),
            "device": str(accelerator.device),
            "device_name": device_name(accelerator.device),
            "arithmetic": arithmetic(),
            **precision_facts(accelerator),
        }
        write_manifest(folder.teacher_manifest(identity), facts)
        _join(parts, folder.teacher_lists(identity))
        shutil.rmtree(folder.teacher_parts(identity))
    accelerator.wait_for_everyone()


def _origin(dataset: TextDataset) -> dict[str, Any]:
    """The file that the scored lists come from, for the manifest."""
    if dataset.lists:
        return {"lists": {"file": str(dataset.lists.path), "sha256": dataset.lists.sha256}}
    return {"first_stage": {"run": str(dataset.first_stage), "sha256": kept_hash(dataset.first_stage)}}


def _write_part(path: Path, lists: Sequence[Candidates], run: Run, texts: Mapping[str, str]) -> None:
    """Writes scores as training lists; `texts` are those of queries that the collection does not have."""
    with atomic_write(path) as tmp, tmp.open("w", encoding="utf-8") as out:
        for candidates in lists:
            scores = run[candidates.query_id]
            labels = [float(f"{scores[doc_id]:.9g}") for doc_id in candidates.doc_ids]  # exact for a float32
            query_id = candidates.query_id
            query = {"query": texts[query_id]} if query_id in texts else {"query_id": query_id}
            record = {**query, "doc_ids": candidates.doc_ids, "labels": labels}
            out.write(json.dumps(record, ensure_ascii=False) + "\n")


def _join(parts: Sequence[Path], target: Path) -> None:
    with atomic_write(target) as tmp, tmp.open("wb") as out:
        for part in parts:
            with part.open("rb") as lines:
                shutil.copyfileobj(lines, out)
