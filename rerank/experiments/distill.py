"""`rerank distill`: a teacher scores the candidates of every query once; a student is trained on its scores."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Literal

from accelerate import Accelerator

from rerank.batches.templates import check_text_template
from rerank.config import Config
from rerank.data.candidates import standardised
from rerank.data.collections import Collection
from rerank.data.runs import read_run
from rerank.data.trec import first_documents
from rerank.data.types import Run
from rerank.experiments.checks import check_training, cut_of
from rerank.experiments.collection import expect_text
from rerank.experiments.first_stage import first_stage_run
from rerank.experiments.runs.layout import ExperimentFolder
from rerank.experiments.runs.run_files import is_run
from rerank.experiments.score import model_hashes, rescore
from rerank.experiments.text_task import TextDataset, open_text
from rerank.experiments.train import train_folds
from rerank.losses import LABELS
from rerank.models.hub import encoder_folder, read_configs
from rerank.training.device import exclusive, kept_torch_settings, open_accelerator, precision_of, uses_tf32
from rerank.utils.errors import UserError
from rerank.utils.files import kept_hash, short_hash, write_text
from rerank.utils.progress import log


@kept_torch_settings()
def distill(
    config: Config,
    teachers: str | Sequence[str],
    fold: str = "all",
    teacher_template: str = "",
    documents: int | Literal["all"] = "all",
) -> ExperimentFolder:
    """Trains the encoder of the settings, the student, on the scores of a teacher for the candidates.

    A teacher is a checkpoint, a cross-encoder of the hub, or a run, such as that of a pipeline. A cross-encoder scores
    the candidates of every query once for all folds, students and losses. The scores of several teachers are
    standardised in each list, and their mean is taken. The student is then trained as by `train_folds` with a file of
    these lists; no fold trains on the lists of its validation and test queries. `teacher_template` is the text that the
    pairs of cross-encoders are put into. A list has `documents` of the scored candidates, drawn by the seed, or all.

    Raises UserError for invalid settings, a loss that takes no teacher's scores, a collection without text, a teacher
    without a trained head, and input files that are missing or malformed.
    """
    teachers = [teachers] if isinstance(teachers, str) else list(teachers)
    _check(config, teachers, teacher_template, documents)
    for teacher in teachers:
        if not is_run(teacher):
            _note_its_collection(config, teacher)
    accelerator = open_accelerator(config.training)
    with accelerator.main_process_first():
        dataset = open_text(config, fold)
    lists = _teacher_lists(config, dataset, teachers, teacher_template, documents, accelerator)
    training, output = replace(config.training, lists=str(lists)), config.output
    output = replace(output, name=output.name or f"distill-{config.loss.name}")
    return train_folds(replace(config, training=training, output=output), fold)


def _note_its_collection(config: Config, teacher: str) -> None:
    """Logs a line if a teacher was trained on the collection of the settings."""
    if read_configs(encoder_folder(teacher)).get("rerank", {}).get("collection") == config.collection.source:
        log.info(
            f"teacher {teacher}: was trained on judgments of this collection, also of test queries of other folds; "
            "measure its students on queries that did not train it"
        )


def _check(config: Config, teachers: Sequence[str], template: str, documents: int | Literal["all"]) -> None:
    if not teachers or len(set(teachers)) < len(teachers):
        raise UserError(f"teachers: expected one or more, each once; got {', '.join(teachers) or 'none'}")
    if documents != "all" and documents < 2:
        raise UserError(f"--documents {documents}: expected all, or two or more documents a list")
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


def _teacher_lists(
    config: Config,
    dataset: TextDataset,
    teachers: Sequence[str],
    template: str,
    documents: int | Literal["all"],
    accelerator: Accelerator,
) -> Path:
    """The file of training lists with the teachers' scores of all queries, judged or not; made if it is missing."""
    folder, texts, depth = dataset.folder, dataset.collection.queries, config.first_stage.depth
    with exclusive(accelerator, folder.path, "teacher scores"):  # folds may be trained in parallel
        with accelerator.main_process_first():  # unjudged queries, which training leaves out, are scored too
            queries = {query_id: texts[query_id] for query_id in (*dataset.candidates, *texts)}
            run = first_stage_run(config, dataset.collection, folder, queries)
        asked = replace(config, encoder=replace(config.encoder, template=template))
        inputs = scoring_inputs(asked, run, dataset.collection, accelerator)
        identities, runs = [], []
        for teacher in teachers:
            if is_run(teacher):
                identities.append(kept_hash(Path(teacher)))
                runs.append(Path(teacher))
                continue
            identities.append(short_hash(*model_hashes(teacher), inputs))
            runs.append(scored_once(asked, teacher, run, folder.teacher(identities[-1])[0]))
        drawn = () if documents == "all" else (documents, config.training.seed)
        _, lists = folder.teacher(short_hash(*identities, inputs, *drawn))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process and not lists.is_file():
            _write_lists(lists, first_documents(read_run(run), depth), runs, drawn)
        accelerator.wait_for_everyone()
    return lists


def scoring_inputs(config: Config, run: Path, collection: Collection, accelerator: Accelerator) -> str:
    """A hash of everything, except for the model, that the scores of the candidates of a run depend on."""
    encoder = config.encoder
    return short_hash(
        *(kept_hash(run), config.first_stage.depth, collection.fingerprint, *collection.queries.items()),
        *(encoder.template, encoder.max_doc_tokens, encoder.pooling, cut_of(encoder)),
        *(precision_of(accelerator), uses_tf32(accelerator)),
    )


def scored_once(config: Config, teacher: str, run: Path, scored: Path) -> Path:
    """The run `scored`, made unless it exists: the candidates of `run`, scored by a cross-encoder part by part."""
    if scored.is_file():
        log.info(f"teacher {teacher}: {scored} already exists")
    else:
        rescore(config, teacher, run, scored)
    return scored


def _write_lists(target: Path, candidates: Run, scored: Sequence[Path], drawn: tuple[int, int] | tuple[()]) -> None:
    """Writes the candidates of each query that all teachers scored, in the first stage's order, with the scores.

    `drawn` is the number of documents of a list, and the seed that draws them; without it a list has all. Raises
    UserError if no query has two candidates.
    """
    teachers, lists = [read_run(path) for path in scored], []
    for query_id, found in candidates.items():
        of_query = [teacher.get(query_id, {}) for teacher in teachers]
        doc_ids = [doc_id for doc_id in found if all(doc_id in scores for scores in of_query)]
        if len(doc_ids) > 1:
            scores = zip(doc_ids, _mean_scores(of_query, doc_ids), strict=True)
            labels = _draw({doc_id: float(f"{score:.9g}") for doc_id, score in scores}, query_id, *drawn)
            lists.append({"query_id": query_id, "doc_ids": list(labels), "labels": list(labels.values())})
    if not lists:
        raise UserError(f"{target}: no query has two candidates that every teacher scored, which a list needs")
    write_text(target, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lists))
    log.info(f"teacher: wrote its scores as training lists: {target}")


def _draw(labels: dict[str, float], query_id: str, documents: int | None = None, seed: int = 0) -> dict[str, float]:
    """So many documents of a list, drawn at random, in their order; all of them without a number."""
    if documents is None or len(labels) <= documents:
        return labels
    drawn = set(random.Random(f"{seed} {query_id}").sample(list(labels), documents))
    return {doc_id: score for doc_id, score in labels.items() if doc_id in drawn}


def _mean_scores(teachers: Sequence[Mapping[str, float]], doc_ids: Sequence[str]) -> list[float]:
    """The scores of the documents: of one teacher as they are, of several the mean of the standardised ones."""
    columns: list[Sequence[float]] = [[scores[doc_id] for doc_id in doc_ids] for scores in teachers]
    if len(columns) > 1:
        columns = [standardised(column) for column in columns]
    return [fmean(row) for row in zip(*columns, strict=True)]
