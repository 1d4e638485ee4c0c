"""Distillation: teachers score the candidates of every query once; a student is trained on their scores."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rerank.batches.text_template import check_text_template
from rerank.config import Config
from rerank.jobs.teachers import teacher_lists
from rerank.jobs.train import train_folds
from rerank.losses import LABELS
from rerank.runs.layout import ExperimentFolder
from rerank.tasks.checks import check_settings
from rerank.tasks.dataset import open_dataset
from rerank.tasks.source_checks import expect_text
from rerank.tasks.text import TextDataset
from rerank.training.device import open_training_accelerator
from rerank.training.processes import expect_shared_folder
from rerank.utils.errors import UserError


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
    expect_shared_folder(accelerator, Path(config.output.folder))
    with accelerator.main_process_first():
        dataset = open_dataset(config, fold)
    assert isinstance(dataset, TextDataset)  # as expect_text has checked
    lists = teacher_lists(config, dataset, given, teacher_template, pseudo_queries, accelerator)
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
