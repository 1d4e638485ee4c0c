"""`rerank train`: fine-tunes on the folds of a collection."""

import sys

from rerank.config.flags import AllFlags
from rerank.utils.cluster import LOCAL, Engine
from rerank.utils.progress import print_result


def train(*, fold: str = "all", on: Engine = LOCAL, flags: AllFlags = AllFlags()) -> None:
    """Fine-tunes an encoder, or a network on feature vectors, and writes the runs of the test queries.

    Parameters
    ----------
    fold
        The test fold: 1, 2, …, or all; final: the model to deploy, trained on 90 % of the judged queries.
    on
        Where the folds are trained: local, one after the other; ray or ray://HOST:10001, in parallel on a cluster.
    """
    config = flags.config()
    if on == LOCAL:
        from rerank.experiments.train import train_folds

        print_result(train_folds(config, fold).path)
        return
    from rerank.experiments.sweep import train_side_by_side

    ((shared,), failed) = train_side_by_side([config], fold, on)
    print_result(shared.folder.experiment(config.experiment).path)
    for job, error in failed:
        print(f"failed: fold {job.fold}: {error}", file=sys.stderr)
    sys.exit(1 if failed else 0)
