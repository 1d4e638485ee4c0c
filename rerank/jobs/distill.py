"""Distillation: teachers score the candidates of every query once; a student is trained on their scores."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rerank.batches.text_template import check_text_template
from rerank.config import Config
from rerank.data.folds import FINAL
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
        teachers: the folder of a trained model, or the name of a cross-encoder on the hub; or several of them. The
            folder of an experiment stands for its checkpoint of the fold, or for those of all folds if that is "final".
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
    models = [model for teacher in given for model in _models_of(teacher, fold, dataset.fold_names)]
    lists = teacher_lists(config, dataset, models, teacher_template, pseudo_queries, accelerator)
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


def _models_of(teacher: str, fold: str, fold_names: Sequence[str]) -> list[str]:
    """The teacher itself; of an experiment's folder, its checkpoint of the fold, or for "final" those of all folds.

    So no checkpoint of an experiment teaches a student that is tested on queries that it has seen.
    """
    experiment = ExperimentFolder(Path(teacher))
    if not experiment.folds:
        return [teacher]
    if fold == "all":
        raise UserError(
            f"teacher {teacher}: the folder of an experiment stands for its model of one fold, or of all folds for the "
            f"final student; expected --fold {', '.join(fold_names)} or {FINAL}"
        )
    folds = [experiment.fold(name) for name in (fold_names if fold == FINAL else [fold])]
    for part in folds:
        if not (part.finished and part.checkpoint.is_dir()):
            raise UserError(f"teacher {teacher}: has no finished model of fold {part.name}; train it first")
    return [str(part.checkpoint) for part in folds]
