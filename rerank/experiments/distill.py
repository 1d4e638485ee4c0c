"""Distillation: a teacher scores the candidates of every query once; a student is trained on its scores."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from accelerate import Accelerator

from rerank.batches.text_template import check_text_template
from rerank.config import Config, sections
from rerank.data.candidates import select_candidates
from rerank.data.trec import read_run
from rerank.data.types import Candidates, Run
from rerank.experiments.checks import check_settings
from rerank.experiments.dataset import open_dataset
from rerank.experiments.dense_first_stage import search_dense
from rerank.experiments.first_stage import find_index
from rerank.experiments.source_checks import expect_text
from rerank.experiments.text import TextDataset
from rerank.experiments.text_model import truncation_summary
from rerank.experiments.train import train_folds
from rerank.losses import LABELS
from rerank.models.checkpoints import open_trained_cross_encoder, saved_settings
from rerank.models.hub import file_hashes
from rerank.models.memory import open_budget
from rerank.models.scoring import score_candidates
from rerank.retrieval.bm25 import search
from rerank.runs.layout import ExperimentFolder
from rerank.runs.manifest import write_manifest
from rerank.training.device import arithmetic, device_name, open_training_accelerator, precision_facts, uses_tf32
from rerank.training.processes import exclusive, expect_shared_folder, main_process_first
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.kept_hashes import kept_hash
from rerank.utils.progress import log

PART = 64
"""Queries whose scores are written together: what an interrupted command loses at most."""


def distill(config: Config, teacher: str, fold: str = "all", teacher_template: str = "") -> ExperimentFolder:
    """Trains the encoder of the settings, the student, on a teacher's scores of the candidates.

    The teacher scores the candidates of every query, to `--first-stage.depth`, into a file of training lists in
    runs/<collection>/, which is made once for all folds, students and losses. Then the student is trained as by
    `train_folds` with this file: no fold sees the lists of its validation and test queries.

    Args:
        config: the settings of the training; the experiment's default name is distill-<loss>.
        teacher: the folder of a trained model, or the name of a cross-encoder on the hub.
        fold: the name of the test fold, or "all".
        teacher_template: the text that the teacher's pairs are put into, as `--encoder.template`; a checkpoint of ours
            has its own.

    Returns:
        The folder of the experiment.

    Raises:
        UserError: the settings are invalid, the loss takes no teacher's scores, the collection has no text, the teacher
            has no trained head, or an input file is missing or malformed.
    """
    expect_text(config.collection.source)
    check_settings(config)
    if teacher_template:
        check_text_template(teacher_template, "--teacher-template")
    name, given = config.loss.name, config.training.lists
    if LABELS[name] != "scores":
        expected = ", ".join(sorted(loss for loss, labels in LABELS.items() if labels == "scores"))
        raise UserError(f"--loss {name}: learns from judgments, not from a teacher's scores; expected {expected}")
    if config.first_stage.fusion != "rrf":
        raise UserError(
            f"--first-stage.fusion {config.first_stage.fusion}: the teacher's scores are made once for all folds, and "
            "these weights differ by fold; expected rrf, or a run that `rerank fuse` has written"
        )
    if config.encoder.first_stage_weight:
        raise UserError(
            f"--encoder.first-stage-weight {config.encoder.first_stage_weight:g}: the teacher's lists have no "
            "first-stage scores to add; leave it out"
        )
    if given:
        raise UserError(f"--training.lists {given}: the teacher makes the lists; leave it out, or use `rerank train`")
    accelerator = open_training_accelerator(config.training)
    expect_shared_folder(accelerator, Path(config.output.folder))
    with main_process_first(accelerator, "collection and first stage"):
        dataset = open_dataset(config, fold)
    assert isinstance(dataset, TextDataset)  # as expect_text has checked
    lists = teacher_lists(config, dataset, teacher, teacher_template, accelerator)
    accelerator.free_memory()
    training, output = replace(config.training, lists=str(lists)), config.output
    output = replace(output, name=output.name or f"distill-{name}")
    return train_folds(replace(config, training=training, output=output), fold)


def teacher_lists(config: Config, dataset: TextDataset, teacher: str, template: str, accelerator: Accelerator) -> Path:
    """The file of training lists with the teacher's scores of all candidates; scores what is missing.

    Its name is a hash of the teacher's files, its template, the precision of the run, and what determines the
    candidates and their texts.
    """
    identity = _identity(config, dataset, teacher, template, accelerator)
    folder = dataset.folder
    path = folder.teacher_lists(identity)
    with exclusive(accelerator, folder.path, "teacher scores"):  # folds may be trained in parallel
        if not path.is_file():
            _score_all(config, dataset, teacher, template, identity, accelerator)
        elif accelerator.is_main_process:
            log.info(f"teacher: {path} already exists")
    return path


def _identity(config: Config, dataset: TextDataset, teacher: str, template: str, accelerator: Accelerator) -> str:
    """A hash of everything that the teacher's scores depend on."""
    first, encoder, collection = config.first_stage, config.encoder, dataset.collection
    return short_hash(
        *file_hashes(teacher),
        (template, config.collection.language),
        (encoder.max_doc_tokens, encoder.pooling, accelerator.mixed_precision),
        (kept_hash(dataset.first_stage), first.index, first.depth, first.k1, first.b),
        collection.fingerprint,
        *collection.queries.items(),
        *(("tf32",) if uses_tf32(accelerator) else ()),
    )


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
    for line in model.place(accelerator.device, accelerator.autocast):
        if accelerator.is_main_process:
            log.info(line)
    config = replace(config, encoder=replace(config.encoder, max_doc_tokens=max_doc_tokens))
    with main_process_first(accelerator, "candidates and tokens of the documents"):
        found = _all_candidates(config, dataset)
        teacher_dataset = replace(dataset, config=config, candidates=found)
        passages = teacher_dataset.passages(tokenizer, max_length, model.template, model.splitting)
    lists = [candidates for candidates in found.values() if len(candidates.doc_ids) > 1]
    if not lists:
        raise UserError(f"{dataset.first_stage}: no query has two candidates, which a training list needs")
    pairs = sum(len(candidates.doc_ids) for candidates in lists)
    if accelerator.is_main_process:
        log.info(truncation_summary(passages, max_doc_tokens))
        log.info(f"teacher: {teacher} scores {pairs} candidates of {len(lists)} queries on {accelerator.device}")
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
            what = f"teacher, part {number + 1} of {len(parts)}"
            run = score_candidates(model, passages, chunk, accelerator, memory, what)
            if accelerator.is_main_process:
                _write_part(part, chunk, run)
        accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        facts = {
            "teacher": teacher,
            "template": model.template,
            "files": file_hashes(teacher),
            "config": sections(config),
            "queries": len(lists),
            "candidates": pairs,
            "documents": {"fingerprint": dataset.collection.fingerprint, "tokens": passages.documents.sha256()},
            "first_stage": {"run": str(dataset.first_stage), "sha256": kept_hash(dataset.first_stage)},
            "device": str(accelerator.device),
            "device_name": device_name(accelerator.device),
            "arithmetic": arithmetic(),
            **precision_facts(accelerator),
        }
        write_manifest(folder.teacher_manifest(identity), facts)
        _join(parts, folder.teacher_lists(identity))
        shutil.rmtree(folder.teacher_parts(identity))
    accelerator.wait_for_everyone()


def _write_part(path: Path, lists: Sequence[Candidates], run: Run) -> None:
    with atomic_write(path) as tmp, tmp.open("w", encoding="utf-8") as out:
        for candidates in lists:
            scores = run[candidates.query_id]
            labels = [float(f"{scores[doc_id]:.9g}") for doc_id in candidates.doc_ids]  # exact for a float32
            record = {"query_id": candidates.query_id, "doc_ids": candidates.doc_ids, "labels": labels}
            out.write(json.dumps(record, ensure_ascii=False) + "\n")


def _join(parts: Sequence[Path], target: Path) -> None:
    with atomic_write(target) as tmp, tmp.open("wb") as out:
        for part in parts:
            with part.open("rb") as lines:
                shutil.copyfileobj(lines, out)
