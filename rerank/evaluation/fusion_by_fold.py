"""Weights of a fusion for each fold of a cross-validation: no test query of a fold is used to tune its weights."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from rerank.data.trec import examples
from rerank.data.types import Fold, Judgments, Qrels, Run
from rerank.evaluation.evaluate_runs import map_to_folds
from rerank.evaluation.fusion_of_scores import MOST_TUNED, Weights, tune_weights
from rerank.utils.errors import UserError


def tune_by_fold(runs: Mapping[str, Run], qrels: Judgments, folds: Sequence[Fold], measure: str) -> dict[str, Weights]:
    """Fold -> the weights that are best by `measure` on its judged validation queries; `runs` are name -> run.

    Raises UserError as `tune_on`.
    """
    return {
        fold.name: tune_on(runs, {q: qrels[q] for q in fold.valid if q in qrels}, measure, f" of fold {fold.name}")
        for fold in folds
    }


def tune_on(runs: Mapping[str, Run], qrels: Qrels, measure: str, of_fold: str = "") -> Weights:
    """The weights that are best by `measure` on the judged queries of `qrels`; `runs` are name -> run.

    `of_fold` follows "validation queries" in messages. Raises UserError if no query is judged, a run has none of them,
    or there are too many runs.
    """
    judged = {query_id: grades for query_id, grades in qrels.items() if grades}
    if len(runs) > MOST_TUNED:
        raise UserError(
            f"fusion: the weights of {MOST_TUNED} runs at most can be tuned, got {len(runs)}; give the weights, or "
            "fuse by reciprocal rank"
        )
    if not judged:
        raise UserError(f"fusion: none of the validation queries{of_fold} is judged: there is nothing to tune on")
    for name, run in runs.items():
        if run.keys().isdisjoint(judged):
            raise UserError(
                f"{name}: has none of the {len(judged)} judged validation queries{of_fold} ({examples(judged)}), on "
                "which the weights are tuned; expected a run of all queries"
            )
    return tune_weights(list(runs.values()), judged, measure)


def weights_of_queries(
    query_ids: Sequence[str], folds: Sequence[Fold], by_fold: Mapping[str, Weights], source: str = "folds"
) -> dict[str, Weights]:
    """query_id -> the weights of the fold that tests it; a query that no fold tests has the means over the folds.

    Raises UserError, which names `source`, if two folds test a query.
    """
    fold_of = map_to_folds(folds, source)
    means = tuple(map(fmean, zip(*by_fold.values(), strict=True)))
    return {q: by_fold[fold_of[q]] if q in fold_of else means for q in query_ids}


def weights_in_words(names: Sequence[str], weights: Weights) -> str:
    """The weight of each run.

    >>> weights_in_words(["bm25", "dense"], (0.4, 0.6))
    'bm25 0.40, dense 0.60'
    """
    return ", ".join(f"{name} {weight:.2f}" for name, weight in zip(names, weights, strict=True))
