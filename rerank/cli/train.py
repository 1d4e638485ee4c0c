"""`rerank train`: fine-tuning on the folds of a collection."""

from rerank.cli.checks import check_inputs
from rerank.cli.settings import with_settings
from rerank.config import Config


@with_settings("collection", "first_stage", "encoder", "network", "lists", "loss", "training", "pretraining", "output")
def train(*, fold: str = "all", config: Config) -> None:
    """Fine-tunes an encoder, or a network on feature vectors, and writes the runs of the test queries.

    Parameters
    ----------
    fold
        The test fold: 1, 2, …, or all.
    """
    check_inputs(config)
    from rerank.experiments.train import train_folds

    print(train_folds(config, fold).path)
