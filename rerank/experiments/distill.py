"""`rerank distill`: a teacher scores the candidates of every query once; a student is trained on its scores."""

import json
from dataclasses import replace
from pathlib import Path

from accelerate import Accelerator

from rerank.batches.templates import check_text_template
from rerank.config import Config
from rerank.data.runs import read_run
from rerank.data.trec import first_documents
from rerank.experiments.collection import expect_text
from rerank.experiments.first_stage import first_stage_run
from rerank.experiments.runs.layout import ExperimentFolder
from rerank.experiments.score import rescore
from rerank.experiments.text_task import TextDataset, check_training, open_text
from rerank.experiments.train import train_folds
from rerank.losses import LABELS
from rerank.models.hub import encoder_folder, file_hashes, read_configs
from rerank.training.device import exclusive, kept_torch_settings, open_accelerator, precision_of, uses_tf32
from rerank.utils.errors import UserError
from rerank.utils.files import kept_hash, short_hash, write_text
from rerank.utils.progress import log


@kept_torch_settings()
def distill(config: Config, teacher: str, fold: str = "all", teacher_template: str = "") -> ExperimentFolder:
    """Trains the encoder of the settings, the student, on a teacher's scores of the candidates.

    The teacher, a checkpoint or a cross-encoder of the hub, scores the candidates of every query once for all folds,
    students and losses. The student is then trained as by `train_folds` with a file of these lists; no fold trains on
    the lists of its validation and test queries. `teacher_template` is the text that the teacher's pairs are put into.

    Raises UserError for invalid settings, a loss that takes no teacher's scores, a collection without text, a teacher
    without a trained head, and input files that are missing or malformed.
    """
    _check(config, teacher_template)
    if read_configs(encoder_folder(teacher)).get("rerank", {}).get("collection") == config.collection.source:
        log.info(
            f"teacher {teacher}: was trained on judgments of this collection, also of test queries of other folds; "
            "measure its students on queries that did not train it"
        )
    accelerator = open_accelerator(config.training)
    with accelerator.main_process_first():
        dataset = open_text(config, fold)
    lists = _teacher_lists(config, dataset, teacher, teacher_template, accelerator)
    training, output = replace(config.training, lists=str(lists)), config.output
    output = replace(output, name=output.name or f"distill-{config.loss.name}")
    return train_folds(replace(config, training=training, output=output), fold)


def _check(config: Config, template: str) -> None:
    expect_text(config.collection.source)
    check_training(config, "the teacher")
    if template:
        check_text_template(template, "--teacher-template")
    name = config.loss.name
    if LABELS[name] != "scores":
        expected = ", ".join(sorted(loss for loss, labels in LABELS.items() if labels == "scores"))
        raise UserError(f"--loss {name}: learns from judgments, not from a teacher's scores; expected {expected}")
    if lists := config.training.lists:
        raise UserError(f"--training.lists {lists}: the teacher makes the lists; leave it out")


def _teacher_lists(config: Config, dataset: TextDataset, teacher: str, template: str, accelerator: Accelerator) -> Path:
    """The file of training lists with the teacher's scores of all queries, judged or not; made if it is missing."""
    folder, texts, depth = dataset.folder, dataset.collection.queries, config.first_stage.depth
    with exclusive(accelerator, folder.path, "teacher scores"):  # folds may be trained in parallel
        with accelerator.main_process_first():  # unjudged queries, which training leaves out, are scored too
            queries = {query_id: texts[query_id] for query_id in (*dataset.candidates, *texts)}
            run = first_stage_run(config, dataset.collection, folder, queries)
        asked = replace(config, encoder=replace(config.encoder, template=template))
        identity = short_hash(
            *file_hashes(teacher),
            *(kept_hash(run), depth, dataset.collection.fingerprint, *texts.items()),
            *(template, asked.encoder.max_doc_tokens, asked.encoder.pooling),
            *(precision_of(accelerator), uses_tf32(accelerator)),
        )
        scored, lists = folder.teacher(identity)
        if scored.is_file():
            log.info(f"teacher {teacher}: {scored} already exists")
        else:
            rescore(asked, teacher, run, scored)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process and not lists.is_file():
            _write_lists(lists, run, depth, scored)
        accelerator.wait_for_everyone()
    return lists


def _write_lists(target: Path, run: Path, depth: int, scored: Path) -> None:
    """Writes the candidates of each query, in the first stage's order, with the teacher's scores.

    Raises UserError if no query has two candidates.
    """
    scores, lists = read_run(scored), []
    for query_id, documents in first_documents(read_run(run), depth).items():
        if query_id in scores and len(documents) > 1:
            labels = [float(f"{scores[query_id][doc_id]:.9g}") for doc_id in documents]
            lists.append({"query_id": query_id, "doc_ids": list(documents), "labels": labels})
    if not lists:
        raise UserError(f"{target}: no query has two candidates, which a training list needs")
    write_text(target, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lists))
    log.info(f"teacher: wrote its scores as training lists: {target}")
