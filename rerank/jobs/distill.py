"""Distillation: teachers score the candidates of every query once; a student is trained on their scores.

Each teacher re-ranks a run; the scores of several are averaged, as training lists.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from accelerate import Accelerator

from rerank.batches.text_template import check_text_template
from rerank.config import Config
from rerank.data.candidates import standardised
from rerank.data.queries import read_queries
from rerank.data.trec import first_documents, read_run, write_run
from rerank.data.types import Run
from rerank.jobs.pretraining.pseudo_lists import make_pseudo_lists
from rerank.jobs.rescore import rescore
from rerank.jobs.train import train_folds
from rerank.losses import LABELS
from rerank.models.config_file import CheckpointConfig
from rerank.models.hub import encoder_folder, file_hashes
from rerank.runs.layout import ExperimentFolder
from rerank.tasks.checks import check_settings
from rerank.tasks.dataset import open_dataset
from rerank.tasks.first_stage import find_index, first_stage_run
from rerank.tasks.source_checks import expect_text
from rerank.tasks.text import TextDataset
from rerank.training.device import open_training_accelerator, precision_of, uses_tf32
from rerank.training.processes import exclusive
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.json_files import read_json
from rerank.utils.kept_hashes import kept_hash
from rerank.utils.progress import log


def distill(
    config: Config,
    teachers: str | Sequence[str],
    fold: str = "all",
    teacher_template: str = "",
    pseudo_queries: int = 0,
) -> ExperimentFolder:
    """Trains the encoder of the settings, the student, on the scores that teachers give to the candidates.

    Each teacher scores the candidates of every query, to `--first-stage.depth`, into a run in runs/<collection>/, which
    is made once for all folds, students and losses. Of several teachers, the scores of a list are standardised (mean 0,
    standard deviation 1) and averaged. Then the student is trained as by `train_folds` with a file of these lists: no
    fold sees the lists of its validation and test queries.

    With `pseudo_queries` the teachers score lists of that many pseudo-queries instead, made from the documents as for
    pre-training. No query of the collection trains then; the validation queries choose the epoch.

    Args:
        config: the settings of the training; the experiment's default name is distill-<loss>.
        teachers: the folder of a trained model, or the name of a cross-encoder on the hub; or several of them.
        fold: the name of the test fold, "all", or "final".
        teacher_template: the text that the teachers' pairs are put into, as `--encoder.template`; a checkpoint of ours
            has its own.
        pseudo_queries: how many pseudo-queries the teachers score; 0: the queries of the collection.

    Returns:
        The folder of the experiment.

    Raises:
        UserError: the settings are invalid, the loss takes no teacher's scores, the collection has no text, a teacher
            has no trained head or is given twice, or an input file is missing or malformed.
    """
    given = [teachers] if isinstance(teachers, str) else list(teachers)
    _check(config, given, teacher_template)
    accelerator = open_training_accelerator(config.training)
    with accelerator.main_process_first():
        dataset = open_dataset(config, fold)
    assert isinstance(dataset, TextDataset)  # as expect_text has checked
    lists = _teacher_lists(config, dataset, given, teacher_template, pseudo_queries, accelerator)
    training, output = replace(config.training, lists=str(lists)), config.output
    output = replace(output, name=output.name or f"distill-{config.loss.name}")
    return train_folds(replace(config, training=training, output=output), fold)


def _check(config: Config, teachers: Sequence[str], template: str) -> None:
    if not teachers:
        raise UserError("TEACHER: is missing; expected the folder or the name of one cross-encoder or more")
    expect_text(config.collection.source)
    check_settings(config)
    if template:
        check_text_template(template, "--teacher-template")
    name = config.loss.name
    if LABELS[name] != "scores":
        expected = ", ".join(sorted(loss for loss, labels in LABELS.items() if labels == "scores"))
        raise UserError(f"--loss {name}: learns from judgments, not from a teacher's scores; expected {expected}")
    if weight := config.encoder.first_stage_weight:
        raise UserError(
            f"--encoder.first-stage-weight {weight}: the lists have no first-stage scores to add; leave it out"
        )
    if lists := config.training.lists:
        raise UserError(f"--training.lists {lists}: the teachers make the lists; leave it out")


def _teacher_lists(
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
        _check_teacher(teacher, config.collection.source)
    folder = dataset.folder
    with exclusive(accelerator, folder.path, "teacher scores"):  # folds may be trained in parallel
        with accelerator.main_process_first():
            asked, run = _pseudo_queries(config, dataset, pseudo) if pseudo else _all_queries(config, dataset)
        asked = replace(asked, encoder=replace(asked.encoder, template=template))
        texts, encoder = read_queries(asked.collection.queries) if pseudo else dataset.collection.queries, asked.encoder
        candidates = (kept_hash(run), asked.first_stage.depth, dataset.collection.fingerprint, *texts.items())
        how = (template, encoder.max_doc_tokens, encoder.pooling, precision_of(accelerator), uses_tf32(accelerator))
        runs = []
        for files, teacher in models.items():
            runs.append(folder.teacher_run(short_hash(*files, *candidates, *how)))
            if runs[-1].is_file():
                log.info(f"teacher {teacher}: {runs[-1]} already exists")
            else:
                rescore(asked, teacher, run, runs[-1])
            accelerator.wait_for_everyone()
        lists = folder.teacher_lists(short_hash(*sorted(run.name for run in runs)))
        if accelerator.is_main_process and not lists.is_file():
            ranking = first_documents(read_run(run), asked.first_stage.depth)
            _write_lists(lists, ranking, texts if pseudo else {}, sorted(runs))
        accelerator.wait_for_everyone()
    return lists


def _check_teacher(teacher: str, collection: str) -> None:
    """Raises UserError for a model that adds first-stage scores; logs if it was trained on the collection."""
    config: CheckpointConfig = read_json(encoder_folder(teacher) / "config.json", CheckpointConfig, "choose another")
    saved = config.get("rerank", {})
    if weight := saved.get("first_stage_weight"):
        raise UserError(
            f"teacher {teacher}: adds the first stage's score to its own (--encoder.first-stage-weight {weight:g}), "
            "which the lists do not have; give a teacher that was trained without"
        )
    if saved.get("collection") == collection:
        log.info(
            f"teacher {teacher}: was trained on this collection, on judgments of queries that other folds test; "
            "measure its students on the queries that it has not seen"
        )


def _all_queries(config: Config, dataset: TextDataset) -> tuple[Config, Path]:
    """The first stage's run of all queries of the collection, also of those that training leaves out, as not judged."""
    texts = dataset.collection.queries
    queries = {query_id: texts[query_id] for query_id in (*dataset.candidates, *texts)}
    return config, first_stage_run(config, dataset.collection, dataset.folder, queries)


def _pseudo_queries(config: Config, dataset: TextDataset, count: int) -> tuple[Config, Path]:
    """The settings with a file of `count` pseudo-queries, and their run, made once; equal ones have one list.

    A list has the pseudo-query's source and the negatives of pre-training. Nothing of a document is hidden, as a
    teacher's score says what its source is worth.
    """
    pretraining = replace(config.pretraining, steps=count, lists_per_step=1, held_out=1)
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
        with atomic_write(queries) as tmp:
            lines = (f"p{number}\t{text}\n" for number, text in enumerate(by_text, 1))
            tmp.write_text("".join(lines), encoding="utf-8")
        run = {
            f"p{number}": {doc_id: float(-place) for place, doc_id in enumerate(doc_ids)}
            for number, doc_ids in enumerate(by_text.values(), 1)
        }
        write_run(file, run, "candidates", as_found=True)
    depth = 1 + pretraining.hard_negatives + pretraining.random_negatives
    asked = replace(config.collection, queries=str(queries), query_field="")
    return replace(config, collection=asked, first_stage=replace(first, depth=depth)), file


def _write_lists(target: Path, ranking: Run, texts: Mapping[str, str], runs: Sequence[Path]) -> None:
    """Writes the training lists: the documents of a query in the order of its ranking, and the teachers' scores.

    A query is given by its text, if it has one in `texts`. Raises UserError if no query has two documents.
    """
    scores, lists = [read_run(run) for run in runs], []
    for query_id, documents in ranking.items():
        if query_id not in scores[0] or len(documents) < 2:
            continue
        of_teachers: list[Sequence[float]] = [[run[query_id][doc_id] for doc_id in documents] for run in scores]
        if len(runs) > 1:
            of_teachers = [_standardised(some) for some in of_teachers]
        labels = [float(f"{math.fsum(some) / len(runs):.9g}") for some in zip(*of_teachers, strict=True)]
        query = {"query": texts[query_id]} if texts else {"query_id": query_id}
        lists.append({**query, "doc_ids": list(documents), "labels": labels})
    if not lists:
        raise UserError(f"{target}: no query has two candidates, which a training list needs")
    with atomic_write(target) as tmp:
        tmp.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lists), encoding="utf-8")
    log.info(f"teachers: the scores of {len(runs)} as training lists: {target}")


def _standardised(scores: Sequence[float]) -> Sequence[float]:
    """The standardised scores of a list; 0 if all are equal but for what `write_run` puts between ties."""
    between_ties = float(np.spacing(np.float32(max(map(abs, scores)))))
    equal = max(scores) - min(scores) <= len(scores) * between_ties
    return [0.0] * len(scores) if equal else standardised(scores)
