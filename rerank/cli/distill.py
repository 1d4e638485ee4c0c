"""`rerank distill`: a teacher scores the candidates, and an encoder is trained on its scores."""

from cyclopts import Parameter

from rerank.cli.settings import with_settings
from rerank.config import Config
from rerank.utils.parameters import PathText
from rerank.utils.progress import print_result


@with_settings(
    "collection",
    "first_stage",
    "encoder",
    "loss",
    "training",
    "output",
    flags={"encoder.name": Parameter(alias=("--encoder", "--student"))},
    defaults={"loss.name": "margin_mse"},
)
def distill(teacher: PathText, *, fold: str = "all", teacher_template: str = "", config: Config) -> None:
    """Trains an encoder, the student, on the scores that a cross-encoder, the teacher, gives to the candidates.

    Parameters
    ----------
    teacher
        A checkpoint, or any Hugging Face cross-encoder.
    fold
        The test fold: 1, 2, …, or all; or final, the model to deploy.
    teacher_template
        The prompt of the teacher, as --encoder.template is that of the student.
    """
    from rerank.jobs.distill import distill

    print_result(distill(config, teacher, fold, teacher_template).path)
