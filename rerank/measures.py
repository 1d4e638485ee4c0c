"""The names of measures, as trec_eval writes them and as ir_measures does, and what pytrec_eval is asked for each."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rerank.errors import UserError, nearest
from rerank.other_measures import name_of_other

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
