"""Evaluates several runs over the same queries, and over the queries of each fold."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rerank.data.trec import check_common, examples
from rerank.data.types import Fold, Measurements, Qrels, Run
from rerank.evaluation.evaluate import evaluate, missing_queries
from rerank.utils.errors import UserError


@dataclass(frozen=True)
class JudgedQueries:
    """The judgments of the queries that count.

    `fold_queries` are the query ids of each fold to average over, empty for a mean over the queries, and `fold_of` is
    query_id -> fold. `fold` is the only fold that counts, if there is one.
    """

    qrels: Qrels
    fold_queries: list[list[str]]
    fold_of: Mapping[str, str]
    fold: str | None = None

    @property
    def averaged_over(self) -> str:
        """What means are over, such as "5 folds, 249 queries"."""
        folds = f"{len(self.fold_queries)} folds, " if self.fold_queries else ""
        return f"{folds}{len(self.qrels)} queries" + (f" of fold {self.fold}" if self.fold else "")


@dataclass(frozen=True)
class Evaluation:
    """The values of several runs (run -> measure -> query_id -> value), all over the same queries.

    `notes` say what was missing or left out.
    """

    measurements: dict[str, Measurements]
    queries: JudgedQueries
    notes: list[str]


def map_to_folds(folds: Iterable[Fold], source: str = "folds") -> dict[str, str]:
    """query_id -> name of the fold that tests it; raises UserError, which names `source`, if two folds test a query."""
    fold_of: dict[str, str] = {}
    for fold in folds:
        for query_id in fold.test:
            if fold_of.setdefault(query_id, fold.name) != fold.name:
                raise UserError(
                    f"{source}: folds {fold_of[query_id]} and {fold.name} both test query {query_id}, expected one"
                )
    return fold_of


def select_queries(
    qrels: Qrels, fold_of: Mapping[str, str], fold: str | None = None, source: str = "folds"
) -> JudgedQueries:
    """The judged queries, those of one fold if `fold` is given.

    `fold_of` is query_id -> fold; `source` is where it comes from, for messages. Raises UserError if there is no such
    fold, or if several folds leave out a judged query.
    """
    judged = {query_id: judgments for query_id, judgments in qrels.items() if judgments}
    names = list(dict.fromkeys(fold_of.values()))
    if fold:
        if fold not in names:
            valid = f"one of {', '.join(names)}" if names else "--folds FILE, or fold numbers in the names of the runs"
            raise UserError(f"fold {fold}: no such fold; expected {valid}")
        return JudgedQueries({q: judged[q] for q in judged if fold_of.get(q) == fold}, [], fold_of, fold)
    fold_queries = [[query_id for query_id in judged if fold_of.get(query_id) == name] for name in names]
    fold_queries = [query_ids for query_ids in fold_queries if query_ids]
    if len(fold_queries) < 2:
        return JudgedQueries(judged, [], fold_of)
    outside = [query_id for query_id in judged if query_id not in fold_of]
    if outside:
        raise UserError(
            f"{source}: {len(outside)} of {len(judged)} judged queries are in no fold ({examples(outside)}), so there "
            "is no mean over folds; expected folds with all of them, judgments of the folds' queries alone, or one fold"
        )
    return JudgedQueries({q: judged[q] for query_ids in fold_queries for q in query_ids}, fold_queries, fold_of)


def check_run(name: str, run: Run, queries: JudgedQueries, source: str = "judgments") -> None:
    """Raises UserError if a run has none of the queries, or none of a whole fold, so that means are not comparable.

    `source` names the judgments.
    """
    check_common(run, queries.qrels, name, f"{source} (fold {queries.fold})" if queries.fold else source)
    missing = [queries.fold_of[query_ids[0]] for query_ids in queries.fold_queries if run.keys().isdisjoint(query_ids)]
    if missing:
        folds = Counter(queries.fold_of[query_id] for query_id in run if query_id in queries.fold_of)
        raise UserError(
            f"{name}: no query of fold {', '.join(missing)}; expected a run of all {len(queries.fold_queries)} folds, "
            f"or only the queries of one fold (`--fold {folds.most_common(1)[0][0]}`)"
        )


def evaluate_runs(runs: Mapping[str, Run], qrels: Qrels, queries: JudgedQueries, measures: Iterable[str]) -> Evaluation:
    """Evaluates all runs (name -> run) on the same queries; `qrels` are all judgments, for the notes."""
    measures = list(measures)
    measurements = {name: evaluate(queries.qrels, run, measures) for name, run in runs.items()}
    return Evaluation(measurements, queries, _notes(runs, qrels, queries))


def _notes(runs: Mapping[str, Run], qrels: Qrels, queries: JudgedQueries) -> list[str]:
    """Which queries are missing from the runs, and which queries of theirs cannot count."""
    missing = {name: missing_queries(queries.qrels, run) for name, run in runs.items()}
    notes = [
        f"{name}: {len(query_ids)} of {len(queries.qrels)} queries are missing and count 0: {examples(query_ids)}."
        for name, query_ids in missing.items()
        if query_ids
    ]
    unjudged = dict.fromkeys(query_id for run in runs.values() for query_id in run if not qrels.get(query_id))
    if unjudged:
        notes.append(
            f"Queries of the runs without judgments, which cannot count ({len(unjudged)}): {examples(unjudged)}."
        )
    return notes if any(missing.values()) else ["Every run has every query.", *notes]
