"""The names of measures, as trec_eval writes them and as ir_measures does, and what pytrec_eval is asked for each."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rerank.data.trec import ranked
from rerank.errors import UserError, nearest
from rerank.types import Measurements, Qrels, Run

MEASURES = ("P_1", "P_5", "P_10", "P_20", "map", "ndcg_cut_1", "ndcg_cut_5", "ndcg_cut_10", "ndcg_cut_20", "ndcg")
"""The measures of the paper's table "Text-based IR", in its order, by trec_eval's names."""

# Ours to list: pytrec_eval takes more, but a cut-off of 0 ends the whole process, and num_q or gm_map have no mean.
# trec_eval's name -> how tables write it, and whether `rel`, the grade from which a document is relevant, changes it.
WHOLE = {
    "map": ("MAP", True),
    "ndcg": ("NDCG", False),
    "recip_rank": ("RR", True),
    "Rprec": ("Rprec", True),
    "bpref": ("bpref", True),
    "infAP": ("infAP", True),
    "11pt_avg": ("11pt_avg", True),
    "set_P": ("SetP", True),
    "set_recall": ("SetR", True),
    "set_map": ("SetAP", True),
    "set_F": ("SetF", True),
    "ndcg_rel": ("ndcg_rel", False),
    "Rndcg": ("Rndcg", False),
    "G": ("G", False),
    "binG": ("binG", False),
}
WITH_CUTOFF = {
    "P": ("P", True),
    "recall": ("R", True),
    "map_cut": ("MAP", True),
    "ndcg_cut": ("NDCG", False),
    "success": ("Success", True),
    "relative_P": ("relative_P", True),
}
ALIASES = {"ap": "map", "mrr": "recip_rank", "rr": "recip_rank", "precision": "p", "iprec_at_recall": "iprec"}
NAME = re.compile(r"(?P<family>\w+?)(?:\((?P<settings>[^()]*)\))?(?:(?:@|_|\.)(?P<at>0\.[0-9]+|[01]\.0+|[0-9]+))?")
CUTOFF = re.compile("[1-9][0-9]{0,5}")


@dataclass(frozen=True)
class Measure:
    """`name` is trec_eval's, or ir_measures' where trec_eval has none; `trec_name` is what pytrec_eval computes,
    "" where trec_eval has no such measure and ir_measures computes it by its name.

    `rel` is the grade from which a document is relevant. `gains` are the judgments that it is computed with: "grade" as
    they are, "exponential" 2^grade - 1 (which makes ndcg_cut that of the losses), "judged" 1 for every judged document.
    `cut` is the rank after which the run is cut off beforehand; 0 for nowhere.
    """

    name: str
    label: str
    trec_name: str
    rel: int = 1
    gains: str = "grade"
    cut: int = 0


def parse(measures: Iterable[str]) -> list[Measure]:
    """The measures of these names, each once, in the order given. Raises UserError that names every bad one at once."""
    found: dict[str, Measure] = {}
    bad = []
    for text in measures:
        try:
            measure = _measure(text.strip())
            found.setdefault(measure.name, measure)
        except ValueError as problem:
            bad.append(f"{text!r} ({problem})")
    if bad:
        raise UserError(f"measures: unknown {', '.join(bad)}")
    return list(found.values())


def measure_names(measures: Iterable[str]) -> list[str]:
    """The names by which `evaluate` gives measures that are written trec_eval's way, ir_measures' or as in the table.

    Raises UserError that names every unknown measure at once.

    >>> measure_names(["P@20", "AP", "nDCG@20", "ndcg_cut_20", "P(rel=2)@5", "Judged@20"])
    ['P_20', 'map', 'ndcg_cut_20', 'P(rel=2)@5', 'Judged@20']
    """
    return [measure.name for measure in parse(measures)]


def measure_label(name: str) -> str:
    """How tables write a measure.

    >>> measure_label("ndcg_cut_20"), measure_label("map"), measure_label("nDCG(dcg='exp-log2')@20")
    ('NDCG@20', 'MAP', "nDCG(dcg='exp-log2')@20")
    """
    return parse([name])[0].label


def _measure(text: str) -> Measure:
    try:
        return _parsed(text)
    except ValueError:
        if name := name_of_other(text):
            return Measure(name, name, "")
        raise


def _parsed(text: str) -> Measure:
    """Raises ValueError that says what is wrong with the name."""
    parts = NAME.fullmatch(text)
    family = ALIASES.get(parts["family"].lower(), parts["family"].lower()) if parts else ""
    at = parts["at"] if parts else None
    settings = _settings(parts["settings"] or "") if parts else {}
    if family == "iprec" and at and float(at) <= 1 and round(float(at), 2) == float(at):
        return _leveled(f"iprec_at_recall_{float(at):.2f}", f"IPrec@{at}", True, settings)
    if at and not CUTOFF.fullmatch(at):
        raise ValueError(f"{at} is no cut-off from 1 to 999999")
    if family == "judged" and at and not settings:
        return Measure(f"Judged@{at}", f"Judged@{at}", "set_P", gains="judged", cut=int(at))
    for name, (label, leveled) in (WITH_CUTOFF if at else WHOLE).items():
        if family in (name.lower(), label.lower()):
            trec_name, label = (f"{name}_{at}", f"{label}@{at}") if at else (name, label)
            if name in ("ndcg", "ndcg_cut") and "dcg" in settings:
                return _discounted(trec_name, label, settings)
            return _leveled(trec_name, label, leveled, settings)
    if family == "recip_rank" and at:  # trec_eval has no cut-off for it
        measure = _leveled(family, f"RR@{at}", True, settings)
        return replace(measure, name=measure.label, cut=int(at))
    valid = [*(f"{label}@{at or 20}" for label, _ in WITH_CUTOFF.values()), *(label for label, _ in WHOLE.values())]
    raise ValueError(nearest(text, [*valid, f"Judged@{at or 20}", f"RR@{at or 20}"]))


def _settings(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    return {key.strip(): value.strip().strip("'\"") for key, _, value in pairs}


def _leveled(trec_name: str, label: str, leveled: bool, settings: dict[str, str]) -> Measure:
    rel = settings.pop("rel", "1")
    if settings or not CUTOFF.fullmatch(rel) or (rel != "1" and not leveled):
        raise ValueError(
            "expected no setting but " + ("rel=1, rel=2, …" if leveled else "dcg" if "NDCG" in label else "none")
        )
    if rel == "1":
        return Measure(trec_name, label, trec_name)
    family, _, at = label.partition("@")
    label = f"{family}(rel={rel}){'@' if at else ''}{at}"
    return Measure(label, label, trec_name, rel=int(rel))


def _discounted(trec_name: str, label: str, settings: dict[str, str]) -> Measure:
    if settings == {"dcg": "log2"}:
        return Measure(trec_name, label, trec_name)
    if settings != {"dcg": "exp-log2"}:
        raise ValueError("expected dcg='log2', with gain rel, or dcg='exp-log2', with gain 2^rel - 1, and nothing else")
    label = f"nDCG(dcg='exp-log2'){label.removeprefix('NDCG')}"
    return Measure(label, label, trec_name, gains="exponential")


GDEVALS_HIGHEST_GRADE = 4


def name_of_other(text: str) -> str | None:
    """The name by which ir_measures computes a measure, or None where it has none that trec_eval has not, or no mean.

    Raises ValueError that says what is missing for a measure that it has.
    """
    import ir_measures
    from ir_measures import providers

    try:
        measure = ir_measures.parse_measure(text)
    except (NameError, ValueError):
        return None
    of_trec_eval = {of.NAME for of in providers.registry["pytrec_eval"].SUPPORTED_MEASURES}
    if measure.NAME in of_trec_eval and not measure.params.keys() & {"judged_only", "gains"}:
        return None
    if not isinstance(measure.aggregator(), ir_measures.measures.base.MeanAgg) or measure.params.get("cutoff", 1) < 1:
        return None
    try:
        by = [provider for provider in providers.registry.values() if provider.supports(measure)]
    except AssertionError:  # a setting that is unknown, or one that is needed
        by = []
    if by and all(provider.NAME == "pyndeval" for provider in by):
        raise ValueError("it measures subtopics, which judgments of query_id, doc_id and relevance do not have")
    if any(provider.is_available() for provider in by):
        return str(measure)
    takes = ", ".join(f"@{name}" if name == measure.AT_PARAM else f"{name}=" for name in measure.SUPPORTED_PARAMS)
    if by:
        raise ValueError(f"ir_measures needs more for it: {by[0].install_instructions()}; or other settings of {takes}")
    raise ValueError(f"ir_measures computes it with other settings; it takes {takes}")


def evaluate_others(judged: Qrels, run: Run, names: Sequence[str]) -> Measurements:
    """The values measure -> query_id -> value, as `evaluate` gives them, by ir_measures.

    It is given the documents in trec_eval's order without a tie, and numbers as query ids, since gdeval, which computes
    ERR to five decimals, knows no others. A query without a value, or whose value is no number, counts 0. Raises
    UserError for a grade that gdeval does not take.
    """
    import ir_measures

    measures = {name: ir_measures.parse_measure(name) for name in names}
    if any(measure.NAME == "ERR" for measure in measures.values()):
        for query_id, judgments in judged.items():
            if (grade := max(judgments.values())) > GDEVALS_HIGHEST_GRADE:
                raise UserError(f"query {query_id}: ERR: expected grades up to {GDEVALS_HIGHEST_GRADE}, got {grade}")
    numbers = {query_id: str(number) for number, query_id in enumerate(judged, 1)}
    qrels = {numbers[query_id]: judgments for query_id, judgments in judged.items()}
    orders = {
        numbers[query_id]: {doc_id: -float(rank) for rank, doc_id in enumerate(ranked(scores))}
        for query_id, scores in run.items()
    }
    found = {
        (str(of.measure), of.query_id): float(of.value)
        for of in ir_measures.iter_calc(measures.values(), qrels, orders)
        if math.isfinite(of.value)
    }
    return {
        name: {query_id: found.get((str(measure), numbers[query_id]), 0.0) for query_id in judged}
        for name, measure in measures.items()
    }
