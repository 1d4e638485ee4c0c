"""Checks grades before a training starts: the error names the place of the first one that a loss does not take."""

from pathlib import Path

from rerank.config import LossSettings
from rerank.data.collections import Collection
from rerank.data.letor.layouts import place_of_label
from rerank.data.letor.store import FeatureSet
from rerank.data.lists import TrainingLists, read_training_lists
from rerank.losses import LABELS, highest_grade
from rerank.utils.errors import UserError


def limit(loss: str | LossSettings) -> int:
    """The highest grade that a loss learns from (see `rerank.losses.highest_grade`)."""
    settings = LossSettings(loss) if isinstance(loss, str) else loss
    return highest_grade(settings.name, settings.hyperparameters)


def advice(loss: str | LossSettings) -> str:
    """The remedy that ends a message about a grade that the loss does not take."""
    name, most = loss if isinstance(loss, str) else loss.name, limit(loss)
    others = sorted(one for one, labels in LABELS.items() if labels == "judgments" and highest_grade(one) > most)
    instead = f", or another --loss.metric than ndcg, or one of the losses {', '.join(others)}" if others else ""
    return f"the loss {name} learns from grades up to {most}; take lower ones{instead}"


def check_grades(loss: str | LossSettings, collection: Collection) -> None:
    """Raises UserError for the first judgment above the highest grade that the loss learns from."""
    most = limit(loss)
    for query_id, judged in collection.qrels.items():
        for doc_id, grade in judged.items():
            if grade > most:
                raise UserError(f"{collection.origin.place_of(query_id, doc_id)}: grade {grade}: {advice(loss)}")


def check_labels(loss: str | LossSettings, source: str, fold: str, features: FeatureSet) -> None:
    """As `check_grades`, for the labels of a fold of feature vectors."""
    wrong = features.labels[features.labels > limit(loss)]
    if len(wrong):
        raise UserError(f"{place_of_label(source, fold, int(wrong[0]))}: grade {wrong[0]}: {advice(loss)}")


def read_lists(loss: LossSettings, file: str, collection: Collection) -> TrainingLists:
    """The training lists of a file. Raises UserError as `read_training_lists`, and for a judgment as `check_grades`."""
    return read_training_lists(Path(file), collection.queries, LABELS[loss.name], limit(loss), advice(loss))
