"""What training minimises, a loss, and what validation maximises: the mean of a measure, or minus the mean loss."""

from itertools import islice

import torch

from rerank.batches.batch import make_batch
from rerank.config import LossSettings
from rerank.data.types import Candidates, Qrels, Run
from rerank.evaluation.evaluate import evaluate
from rerank.losses import create
from rerank.training.gradients import Loss
from rerank.utils.errors import UserError
from rerank.utils.plugins import load_plugins

LISTS = 512  # whose losses are computed together


def open_loss(settings: LossSettings, flag: str = "--loss") -> Loss:
    """Returns the loss of these settings; `flag` names it in messages.

    Raises UserError if there is no such loss or hyperparameter, or a value is out of range.
    """
    load_plugins()
    try:
        return create(settings.name, **settings.hyperparameters)
    except ValueError as error:
        raise UserError(f"{flag} {error}") from error


def validation_value(run: Run, qrels: Qrels, measure: str, loss: Loss) -> float:
    """The value of a run of the validation queries: higher is better.

    It is the mean of `measure` over the queries that have judgments; with the measure "loss", minus the mean loss of
    all queries, where a document without a judgment, or with a negative one, has the label 0.
    """
    if measure == "loss":
        return -_mean_loss(run, qrels, loss)
    (values,) = evaluate(qrels, run, [measure]).values()
    return sum(values.values()) / len(values)


def _mean_loss(run: Run, qrels: Qrels, loss: Loss) -> float:
    total, left = 0.0, iter(run.items())
    while some := dict(islice(left, LISTS)):
        lists = []
        for query_id, scores in some.items():
            judged = qrels.get(query_id, {})
            lists.append(Candidates(query_id, tuple(scores), tuple(max(0, judged.get(doc_id, 0)) for doc_id in scores)))
        batch = make_batch(lists, lambda pairs: torch.tensor([run[query_id][doc_id] for query_id, doc_id in pairs]))
        total += float(loss(batch.grid(batch.inputs), batch.labels, batch.mask).double().sum())
    return total / len(run)
