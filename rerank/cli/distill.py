"""`rerank distill`: a teacher scores the candidates, and a student is trained on its scores."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from rerank.config import (
    CollectionSettings,
    EncoderSettings,
    FirstStageSettings,
    LossSettings,
    OutputSettings,
    TrainingSettings,
)
from rerank.config.flags import Flags
from rerank.config.settings import NAME, often
from rerank.utils.parameters import Count, PathText
from rerank.utils.progress import print_result


@dataclass(frozen=True)
class Student(EncoderSettings):
    """The encoder that learns from the teacher."""

    name: Annotated[PathText, often("--encoder", "--student")] = EncoderSettings.name
    """A Hugging Face encoder or cross-encoder: a hub name or a folder."""


@dataclass(frozen=True)
class DistillationLoss(LossSettings):
    """The loss, whose labels are the teacher's scores."""

    name: Annotated[str, often("--loss")] = "margin_mse"
    """The name of the loss that training minimises."""


@dataclass(frozen=True)
class StudentOutput(OutputSettings):
    """Where the student is written."""

    name: Annotated[str, often("--name"), Parameter(validator=NAME)] = ""
    """The experiment's name; default: distill- and the name of the loss."""


@dataclass(frozen=True)
class DistillFlags(Flags):
    """The settings of a distillation."""

    collection: CollectionSettings = CollectionSettings()
    first_stage: FirstStageSettings = FirstStageSettings()
    encoder: Student = Student()
    loss: DistillationLoss = DistillationLoss()
    training: TrainingSettings = TrainingSettings()
    output: StudentOutput = StudentOutput()


def distill(
    *teachers: PathText,
    fold: str = "all",
    teacher_template: str = "",
    documents: Count = "all",
    flags: DistillFlags = DistillFlags(),
) -> None:
    """Trains an encoder, the student, on the scores of one or several teachers.

    Parameters
    ----------
    teachers
        Checkpoints, Hugging Face cross-encoders, or run files; the mean of several's standardised scores is taken.
    fold
        The test fold: 1, 2, …, or all; or final, the model to deploy.
    teacher_template
        The teacher's prompt with {query} and {document}; --encoder.template is the student's.
    documents
        Documents of a training list, drawn by --seed from the candidates; all: every candidate.
    """
    from rerank.experiments.distill import distill

    print_result(distill(flags.config(), teachers, fold, teacher_template, documents).path)
