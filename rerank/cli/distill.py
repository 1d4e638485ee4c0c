"""`rerank distill`: teachers score the candidates, and an encoder is trained on their scores."""

from typing import Annotated

from cyclopts import Parameter

from rerank.cli.settings import with_settings
from rerank.config import Config
from rerank.utils.parameters import PathText, Whole, at_least
from rerank.utils.progress import print_result


@with_settings(
    "collection",
    "first_stage",
    "encoder",
    "loss",
    "training",
    "pretraining",
    "output",
    flags={"encoder.name": Parameter(alias=("--encoder", "--student"))},
    defaults={"loss.name": "margin_mse"},
)
def distill(
    *teachers: PathText,
    fold: str = "all",
    teacher_template: str = "",
    pseudo_queries: Annotated[Whole, at_least(0)] = 0,
    config: Config,
) -> None:
    """Trains an encoder, the student, on the scores that cross-encoders, the teachers, give to the candidates.

    Parameters
    ----------
    teachers
        Checkpoints, or any Hugging Face cross-encoders.
    fold
        The test fold: 1, 2, …, or all; or final, the model to deploy.
    teacher_template
        The prompt of the teachers, as --encoder.template is that of the student.
    pseudo_queries
        How many pseudo-queries, made from the documents, the teachers score; 0: the queries of the collection.
    """
    from rerank.jobs.distill import distill

    print_result(distill(config, teachers, fold, teacher_template, pseudo_queries).path)
