"""Measures that trec_eval does not have, such as ERR and RBP, computed by ir_measures and the packages it calls."""

import ast
import math
from collections.abc import Sequence
from typing import Any

from rerank.data.trec import ranked
from rerank.evaluation.measures import UnknownMeasureError
from rerank.evaluation.third_party import import_package, quiet
from rerank.types import Measurements, Qrels, Run
from rerank.utils.errors import UserError

GDEVALS_HIGHEST_GRADE = 4


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

    ir_measures gets the documents in trec_eval's order without ties, and numbers as query ids: gdeval, which computes
    ERR to five decimals, accepts no others. The value of a query is 0 if there is none or it is not finite. Raises
    UserError for a grade that gdeval does not accept.
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
        provider = next(one for one in _providers(measure) if not _unavailable(one, name))
        by_number = {one.query_id: float(one.value) for one in provider.iter_calc([measure], qrels, rankings)}
        of_query = {query_id: by_number.get(number, 0.0) for query_id, number in numbers.items()}
        values[name] = {query_id: value if math.isfinite(value) else 0.0 for query_id, value in of_query.items()}
    return values


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
