"""Measures of a run, query by query, as trec_eval computes them: pytrec_eval does, no metric is written here."""

import re
from collections.abc import Iterable

from rerank.errors import UserError, nearest
from rerank.trec import check_common, check_scores
from rerank.types import Measurements, Qrels, Run

MEASURES = ("P_1", "P_5", "P_10", "P_20", "map", "ndcg_cut_1", "ndcg_cut_5", "ndcg_cut_10", "ndcg_cut_20", "ndcg")
"""The measures of the paper's table "Text-based IR", in its order, by trec_eval's names."""

# Ours to list: pytrec_eval takes more, but a cut-off of 0 ends the whole process, and num_q or gm_map have no mean.
WHOLE = {"map": "MAP", "ndcg": "NDCG", "recip_rank": "RR", "Rprec": "Rprec", "bpref": "bpref"}
WITH_CUTOFF = {"P": "P", "recall": "R", "map_cut": "MAP", "ndcg_cut": "NDCG", "success": "Success"}


def measure_names(measures: Iterable[str]) -> list[str]:
    """trec_eval's names of measures that are written its way or as in the table, each once, in the order given.

    Raises UserError that names every unknown measure at once.

    >>> measure_names(["P@20", "MAP", "nDCG@20", "ndcg_cut_20"])
    ['P_20', 'map', 'ndcg_cut_20']
    """
    names, bad = [], []
    for measure in measures:
        found = re.fullmatch(r"(.+?)(?:[@_]([1-9][0-9]{0,5}))?", measure.strip())
        family, cutoff = found.groups() if found else ("", None)
        known = WITH_CUTOFF if cutoff else WHOLE
        name = next((n for n, label in known.items() if family.lower() in (n.lower(), label.lower())), None)
        if name:
            names.append(f"{name}_{cutoff}" if cutoff else name)
        else:
            valid = [*WHOLE.values(), *(f"{label}@{cutoff or 20}" for label in WITH_CUTOFF.values())]
            bad.append(f"{measure!r} ({nearest(measure, valid)})")
    if bad:
        raise UserError(f"measures: unknown {', '.join(bad)}")
    return list(dict.fromkeys(names))


def measure_label(name: str) -> str:
    """How tables write one of trec_eval's names.

    >>> measure_label("ndcg_cut_20"), measure_label("map")
    ('NDCG@20', 'MAP')
    """
    family, _, cutoff = name.rpartition("_")
    return WHOLE[name] if name in WHOLE else f"{WITH_CUTOFF[family]}@{cutoff}"


def evaluate(qrels: Qrels, run: Run, measures: Iterable[str] = MEASURES) -> Measurements:
    """The values measure (by its trec_eval name) -> query_id -> value, for every query that has a judgment.

    A query that the run lacks counts 0 (see `missing`); trec_eval does so with -c. A query that has judgments but no
    relevant document counts 0 too: trec_eval keeps it in the mean. Queries of the run without a judgment have no value.
    Ties, float32 scores and graded gains (rel, not 2^rel - 1) are trec_eval's. Raises UserError for unknown measures,
    for a score that is no finite float32, and where the run and the judgments share no query.
    """
    import pytrec_eval

    names = measure_names(measures)
    judged = {query_id: judgments for query_id, judgments in qrels.items() if judgments}
    check_common(run, judged)
    found = {query_id: run[query_id] for query_id in judged if run.get(query_id)}
    check_scores(found)
    values = pytrec_eval.RelevanceEvaluator(judged, names).evaluate(found)
    return {name: {q: values[q][name] if q in values else 0.0 for q in judged} for name in names}


def missing(qrels: Qrels, run: Run) -> list[str]:
    """The query ids with judgments for which the run has no document: each counts 0 in every measure."""
    return [query_id for query_id, judgments in qrels.items() if judgments and not run.get(query_id)]
