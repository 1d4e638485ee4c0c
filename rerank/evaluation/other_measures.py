"""Measures that trec_eval does not have, such as ERR and RBP, computed by ir_measures and the packages it calls."""

import ast
import math
from collections.abc import Sequence
from typing import Any

from rerank.data.trec import ranked
from rerank.data.types import Measurements, Qrels, Run
from rerank.evaluation.graded import graded_value
from rerank.evaluation.measures import UnknownMeasureError
from rerank.evaluation.third_party import import_package, quiet
from rerank.utils.errors import UserError

GDEVALS_HIGHEST_GRADE = 4
HIGHEST_REL = 999_999  # as that of trec_eval's measures


def name_of_other(text: str) -> str | None:
    """ir_measures' name of a measure that only it computes; None if it has none, or none with a mean over queries.

    Raises UnknownMeasureError, which says what is missing, if ir_measures has the measure but cannot compute it, and
    UserError if a package that computes it is installed but cannot be imported.
    """
    ir_measures = _ir_measures()
    measure = _measure(text)
    if measure is None:
        return None
    names_of_trec_eval = {one.NAME for one in ir_measures.pytrec_eval.SUPPORTED_MEASURES}
    if measure.NAME in names_of_trec_eval and not measure.params.keys() & {"judged_only", "gains"}:
        return None
    rel = measure.params.get("rel", 1)
    if measure.NAME in names_of_trec_eval and not (isinstance(rel, int) and 1 <= rel <= HIGHEST_REL):
        raise UnknownMeasureError(f"expected rel from 1 to {HIGHEST_REL}")
    parameters = ", ".join(f"@{name}" if name == measure.AT_PARAM else f"{name}=" for name in measure.SUPPORTED_PARAMS)
    try:
        measure.validate_params()
    except AssertionError as error:
        raise UnknownMeasureError(f"ir_measures computes it with other parameters; it takes {parameters}") from error
    if not isinstance(measure.aggregator(), ir_measures.MeanAgg) or measure.params.get("cutoff", 1) < 1:
        return None
    providers = _providers(measure)
    if providers and all(provider.NAME == "pyndeval" for provider in providers):
        raise UnknownMeasureError("it measures subtopics, which judgments of (query_id, doc_id, relevance) do not have")
    reasons = []
    for provider in providers:
        if not (reason := _unavailable(provider, text)):
            return str(measure)
        reasons.append(reason)
    if reasons:
        raise UnknownMeasureError(f"ir_measures needs more for it: {reasons[0]}; or other parameters of {parameters}")
    raise UnknownMeasureError(f"ir_measures computes it with other parameters; it takes {parameters}")


def evaluate_others(judged: Qrels, run: Run, names: Sequence[str]) -> Measurements:
    """The values measure -> query_id -> value, as `evaluate` returns them, of measures that `name_of_other` has named.

    No grade is negative. ir_measures gets the documents in trec_eval's order without ties, and numbers as query ids:
    gdeval, which computes ERR to five decimals, accepts no others. The value of a query is 0 if there is none or it is
    not finite. Raises UserError for a grade that gdeval does not accept.
    """
    measures = {name: _measure(name) for name in names}
    if any(measure.NAME == "ERR" for measure in measures.values()):
        for query_id, judgments in judged.items():
            if (grade := max(judgments.values())) > GDEVALS_HIGHEST_GRADE:
                raise UserError(f"query {query_id}: ERR: expected grades up to {GDEVALS_HIGHEST_GRADE}, got {grade}")
    numbers = {query_id: str(number) for number, query_id in enumerate(judged, 1)}
    qrels = {numbers[query_id]: judgments for query_id, judgments in judged.items()}
    rankings = {
        numbers[query_id]: {doc_id: -float(rank) for rank, doc_id in enumerate(ranked(scores))}
        for query_id, scores in run.items()
    }
    values = {}
    for name, measure in measures.items():
        if measure.NAME == "nDCG":
            by_number = {number: _ndcg(measure, qrels[number], rankings[number]) for number in rankings}
        else:
            provider = next(one for one in _providers(measure) if not _unavailable(one, name))
            grades = _two_grades(qrels, measure) if provider.NAME == "pytrec_eval" else qrels
            defined = _with_non_relevant(rankings, qrels, measure) if measure.NAME == "Accuracy" else rankings
            by_number = {one.query_id: float(one.value) for one in provider.iter_calc([measure], grades, defined)}
        of_query = {query_id: by_number.get(number, 0.0) for query_id, number in numbers.items()}
        values[name] = {query_id: value if math.isfinite(value) else 0.0 for query_id, value in of_query.items()}
    return values


def _ndcg(measure: Any, grades: dict[str, int], ranking: dict[str, float]) -> float:
    """The nDCG with other gains or of the judged documents alone, as pytrec_eval computes it; a negative gain is 0."""
    new_gains = measure.params.get("gains", {})
    gains = {doc_id: max(new_gains.get(grade, grade), 0) for doc_id, grade in grades.items()}
    doc_ids = [doc_id for doc_id in ranking if doc_id in gains or not measure.params.get("judged_only")]
    cutoff = measure.params.get("cutoff", 0)
    return graded_value("ndcg", [gains.get(doc_id, 0) for doc_id in doc_ids], list(gains.values()), cutoff)


def _with_non_relevant(rankings: Run, qrels: Qrels, measure: Any) -> Run:
    """The rankings with a non-relevant document: ir_measures divides by their number for Accuracy."""
    cutoff, rel = measure.params.get("cutoff"), measure.params.get("rel", 1)
    return {
        number: ranking
        for number, ranking in rankings.items()
        if any(qrels[number].get(doc_id, 0) < rel for doc_id in list(ranking)[:cutoff])
    }


def _two_grades(qrels: Qrels, measure: Any) -> Qrels:
    """The grades 0 and `rel`, which are all that these measures tell apart: pytrec_eval counts up to the highest."""
    rel = measure.params.get("rel", 1)
    return {q: {doc_id: rel * (grade >= rel) for doc_id, grade in grades.items()} for q, grades in qrels.items()}


def _ir_measures() -> Any:
    return import_package("ir_measures", "pip install --force-reinstall ir-measures cwl-eval")


def _measure(text: str) -> Any:
    """The measure of ir_measures, or None; as ir_measures.parse_measure, but for any version of Python."""
    try:
        node: ast.expr = ast.parse(text, mode="eval").body
        params, at = {}, None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            at, node = ast.literal_eval(node.right), node.left
        if isinstance(node, ast.Call) and not node.args and all(keyword.arg for keyword in node.keywords):
            params = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
            node = node.func
    except (SyntaxError, ValueError):
        return None
    measure = _ir_measures().measures.registry.get(node.id) if isinstance(node, ast.Name) else None
    if measure is None:
        return None
    return measure(**params) if at is None else measure(**params) @ at


def _providers(measure: Any) -> list[Any]:
    """The packages that compute a measure, those that ir_measures prefers first."""
    ir_measures = _ir_measures()
    providers = dict.fromkeys([*ir_measures.DefaultPipeline.providers, *ir_measures.providers.registry.values()])
    return [provider for provider in providers if provider.supports(measure)]


def _unavailable(provider: Any, measure: str) -> str:
    """Why a package cannot be used and how to install it; "" if it can. Raises UserError if its import fails."""
    install = provider.install_instructions() or f"install {provider.NAME}"
    try:
        with quiet():
            provider.initialize()
    except RuntimeError as error:  # how ir_measures says that a package is not there; its cause says which
        missing = error.__context__
        return f"{install} ({missing})" if missing else f"{install} ({error})"
    except Exception as error:
        raise UserError(
            f"{measure}: {provider.NAME}, which computes it, cannot be imported: {type(error).__name__}: {error}; "
            f"expected a working installation: {install}"
        ) from error
    return ""
