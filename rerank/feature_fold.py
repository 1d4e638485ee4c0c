"""A fold of feature vectors and the paper's network, as `experiment` trains it."""

from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from rerank.batches.features import FeatureList, make_feature_batch
from rerank.batches.sampling import epoch_queries
from rerank.config import Config
from rerank.errors import UserError
from rerank.evaluation import evaluate
from rerank.feature_preparation import PreparedFeatures
from rerank.feature_scoring import judgments, mean_loss_of, run_of, score_features
from rerank.fold_work import FoldWork
from rerank.gradients import Loss
from rerank.models.feature_mlp import FeatureMLP, open_feature_mlp, save_feature_mlp
from rerank.types import Fold, Run


def feature_fold(
    config: Config, prepared: PreparedFeatures, loss: Loss, accelerator: Accelerator, fold: Fold
) -> FoldWork:
    """The work of a fold: all queries are trained on, those without a relevant document for batch norm alone.

    Raises UserError where there is nothing to learn from, and for several processes.
    """
    if accelerator.num_processes > 1:
        raise UserError(
            f"{accelerator.num_processes} processes: batch norm would see each one's share of a step alone; "
            "feature vectors are trained by one process"
        )
    table = config.training
    _, train, valid, test = prepared.sets[fold.name]
    if not any((train.labels[begin:end] > 0).any() for begin, end in zip(train.begins, train.ends, strict=True)):
        raise UserError(
            f"fold {fold.name}: none of its {len(fold.train)} training queries has a relevant document: "
            "nothing to learn"
        )
    model = FeatureMLP(train.features.shape[1], config.network.hidden, table.seed).to(accelerator.device)
    judged = judgments(valid)
    latest = torch.zeros(0)

    def validate() -> float:
        nonlocal latest
        latest = score_features(model, valid, accelerator)
        if table.measure == "loss":
            return -mean_loss_of(valid, latest, loss)
        (values,) = evaluate(judged, run_of(judged, latest), [table.measure]).values()
        return sum(values.values()) / len(values)

    def test_run(checkpoint: Path) -> Run:
        best = open_feature_mlp(checkpoint).to(accelerator.device)
        return run_of(judgments(test), score_features(best, test, accelerator))

    def facts() -> dict[str, Any]:
        return {
            "features": {"width": model.features, "files": prepared.checksums[fold.name]},
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
        }

    return FoldWork(
        model,
        [{"params": list(model.parameters()), "lr": table.lr}],
        lambda epoch: [
            FeatureList(train, query, (table.seed, 1, place))
            for place, query in epoch_queries(len(fold.train), epoch, table.lists_per_epoch, table.seed)
        ],
        make_feature_batch,
        validate,
        lambda: run_of(judged, latest),
        lambda folder: save_feature_mlp(model, folder),
        test_run,
        dict,
        facts,
        lambda: {"valid": judged, "test": judgments(test)},
        None,
    )
