"""`rerank train`: fine-tuning on the folds of a collection."""

from typing import Annotated

from cyclopts import Parameter

from rerank.cli.checks import check_inputs
from rerank.cli.settings import with_settings
from rerank.config import Config
from rerank.utils.parameters import OptionalPath
from rerank.utils.progress import print_result


@with_settings("collection", "first_stage", "encoder", "network", "lists", "loss", "training", "pretraining", "output")
def train(
    *,
    fold: str = "all",
    epochs_from: Annotated[OptionalPath, Parameter(name="--training.epochs-from", metavar="FOLDS")] = None,
    config: Config,
) -> None:
    """Fine-tunes an encoder, or a network on feature vectors, and writes the runs of the test queries.

    Parameters
    ----------
    fold
        The test fold: 1, 2, …, or all; final: the model to deploy, trained on every judged query but 10 % to validate.
    epochs_from
        With --fold final: no validation; the median of the best epochs of the folds in runs/<collection>/<experiment>.
    """
    check_inputs(config)
    from rerank.experiments.train import train_folds

    print_result(train_folds(config, fold, epochs_from).path)
