"""`rerank eval --interpolate`: beside every run, the run mixed with the first stage, its weight tuned fold by fold."""

from collections.abc import Sequence
from pathlib import Path

from rerank.errors import UserError
from rerank.interpolation import interpolate, tune
from rerank.measures import measure_label
from rerank.run_files import validation_run
from rerank.trec import examples, read_run
from rerank.types import Fold, Qrels, Run


def with_interpolated(
    runs: dict[str, Run],
    files: dict[str, dict[str, Path]],
    first: tuple[str, Run],
    folds: Sequence[Fold],
    judged: Qrels,
    measure: str,
) -> tuple[dict[str, Run], list[str]]:
    """`runs` (name -> run) with the row `name + first` below each but the first stage, and the notes on the weights.

    `files` are those of each run, `first` the name and the run of the first stage. The weight of a fold is the best by
    `measure` (a trec_eval name) on its validation topics, with the model's scores from valid.run (see
    `validation_run`); where no fold has that file, the run's own scores of these topics are taken. Raises UserError
    where a fold has no judged validation topic in the first stage, or the model's scores of one are not there.
    """
    first_name, first_run = first
    rows, notes = {}, []
    for name, run in runs.items():
        rows[name] = run
        if name == first_name:
            continue
        weights, weight_of = {}, {}
        beside = any(validation_run(files[name], fold.name).is_file() for fold in folds)
        for fold in folds:
            valid = {query_id: judged[query_id] for query_id in fold.valid if query_id in judged}
            if first_run.keys().isdisjoint(valid):
                raise UserError(
                    f"{first_name} has none of the {len(valid)} judged validation topics of fold {fold.name}: expected "
                    "the first stage's run of all topics, to tune the weights on"
                )
            scores = _validation_scores(name, run, files[name], fold.name, beside)
            lacking = [query_id for query_id in valid if query_id in first_run and query_id not in scores[1]]
            if lacking:
                raise UserError(
                    f"{scores[0]}: lacks {len(lacking)} of the {len(valid)} validation topics of fold {fold.name} "
                    f"({examples(lacking)}), which the weight is tuned on; expected the model's scores of all of them"
                )
            weights[fold.name] = tune(scores[1], first_run, valid, measure)
            weight_of.update(dict.fromkeys(fold.test, weights[fold.name]))
        rows[f"{name} + {first_name}"] = interpolate(run, first_run, weight_of)
        source = "its valid.run" if beside else "its own scores of them"
        found = ", ".join(f"fold {fold} {weight:.2f}" for fold, weight in weights.items())
        notes.append(
            f"{name} + {first_name}: weight of {name} by {measure_label(measure)} on each fold's validation topics "
            f"({source}): {found}."
        )
    return rows, notes


def _validation_scores(name: str, run: Run, files: dict[str, Path], fold: str, beside: bool) -> tuple[str, Run]:
    """Where the model's scores of a fold's validation topics come from, for a message, and the scores."""
    path = validation_run(files, fold)
    return (str(path), read_run(path)) if beside else (f"{name} (there is no {path} either)", run)
