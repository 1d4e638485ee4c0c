"""`rerank distill`: a teacher scores the candidates, and an encoder is trained on its scores."""

from rerank.cli.checks import check_inputs, check_path
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
    "pretraining",
    "output",
    aliases={"encoder.name": "--student"},
    defaults={"loss.name": "margin_mse"},
)
def distill(teacher: PathText, /, *, fold: str = "all", teacher_template: str = "", config: Config) -> None:
    """Trains an encoder, the student, on the scores that a cross-encoder, the teacher, gives to the candidates.

    Parameters
    ----------
    teacher
        runs/<collection>/<experiment>/fold1/checkpoint, or any Hugging Face cross-encoder.
    fold
        The test fold: 1, 2, …, or all.
    teacher_template
        The prompt of the teacher, as --encoder.template is that of the student.
    """
    check_inputs(config)
    check_path("teacher", teacher)
    from rerank.experiments.distill import distill

    print_result(distill(config, teacher, fold, teacher_template).path)
