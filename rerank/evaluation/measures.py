"""Names of measures: those of ir_measures, and how pytrec_eval computes each of them.

The names of trec_eval are accepted everywhere, and no other module knows them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rerank.utils.errors import UserError, nearest

DEFAULT_MEASURES = ("P@1", "P@5", "P@10", "P@20", "AP", "nDCG@1", "nDCG@5", "nDCG@10", "nDCG@20", "nDCG")
"""The measures of the table "Text-based IR" of Thonet et al. (2022), in its order."""

# ir_measures.parse_measure and parse_trec_measure are not used: importing them takes 40 ms, they read `ast.Num`, which
# Python 3.12 deprecates and 3.14 does not have, and they accept a cut-off of 0, on which pytrec_eval ends the process.
WHOLE = {
    "map": "AP",
    "ndcg": "nDCG",
    "recip_rank": "RR",
    "Rprec": "Rprec",
    "bpref": "Bpref",
    "infAP": "infAP",
    "set_P": "SetP",
    "set_recall": "SetR",
    "set_map": "SetAP",
    "set_F": "SetF",
    "11pt_avg": "11pt_avg",
    "ndcg_rel": "ndcg_rel",
    "Rndcg": "Rndcg",
    "G": "G",
    "binG": "binG",
    "utility": "utility",
    "gm_map": "gm_map",
    "gm_bpref": "gm_bpref",
    "num_q": "NumQ",
    "num_rel": "NumRel",
    "num_ret": "NumRet",
    "num_nonrel_judged_ret": "num_nonrel_judged_ret",
}
"""Measures without a cut-off: trec_eval's name and ir_measures', or trec_eval's again where ir_measures has none."""

WITH_CUTOFF = {
    "P": "P",
    "recall": "R",
    "map_cut": "AP",
    "ndcg_cut": "nDCG",
    "success": "Success",
    "relative_P": "relative_P",
}
"""Measures with a cut-off, likewise."""

WITHOUT_REL = {"nDCG", "ndcg_rel", "G", "NumQ"}
"""Measures that do not depend on a minimum grade `rel` of a relevant document."""

SUMMED = {"NumQ", "NumRel", "NumRet", "num_nonrel_judged_ret"}
"""Numbers of queries and documents, which trec_eval sums over the queries."""

GEOMETRIC = {"gm_map", "gm_bpref"}
"""Measures with a geometric mean over the queries: the values of the queries are natural logarithms."""

RELATIVE_P = "relative_P.5,10,15,20,30,100,200,500,1000"
"""What trec_eval's name relative_P stands for."""

ALIASES = {"map": "ap", "mrr": "rr", "precision": "p", "iprec_at_recall": "iprec"}
NAME = re.compile(r"(?P<family>\w+?)(?:\((?P<parameters>[^()]*)\))?(?:(?:@|_|\.)(?P<at>0\.[0-9]+|[01]\.0+|[0-9]+))?")
SEVERAL = re.compile(r"(\w+?[@_.])([0-9.]+(?:,[0-9.]+)+)")  # trec_eval's ndcg_cut.10,20
CUTOFF = re.compile("[1-9][0-9]{0,5}")


@dataclass(frozen=True)
class Measure:
    """A measure and how to compute it.

    `name` is ir_measures' name. `trec_name` is what pytrec_eval computes, "" if ir_measures computes the measure.
    `rel` is the lowest grade of a relevant document. `gains` says what pytrec_eval gets as the grades: "grade" the
    grades themselves, "exponential" 2^grade - 1 (then its nDCG is that of the losses), "judged" 1 for every judged
    document. `cutoff` is the rank after which the run is cut off beforehand; 0 keeps it whole.
    """

    name: str
    trec_name: str
    rel: int = 1
    gains: str = "grade"
    cutoff: int = 0


class UnknownMeasureError(Exception):
    """A name that is no measure; the message says why or what to do."""


def parse_measures(names: Iterable[str]) -> list[Measure]:
    """The measures of these names, each once, in the order given. Raises UserError that names every unknown one."""
    measures: dict[str, Measure] = {}
    unknown = []
    for text in names:
        for name in _split(text.strip()):
            try:
                measure = _parse(name)
                measures.setdefault(measure.name, measure)
            except UnknownMeasureError as error:
                unknown.append(f"{name!r} ({error})")
    if unknown:
        raise UserError(f"measures: unknown {', '.join(unknown)}")
    return list(measures.values())


def measure_names(names: Iterable[str]) -> list[str]:
    """ir_measures' names of measures that are written as in ir_measures or as in trec_eval.

    Raises UserError that names every unknown measure at once.

    >>> measure_names(["P_20", "map", "ndcg_cut.10,20", "nDCG@20", "P(rel=2)@5", "Judged@20"])
    ['P@20', 'AP', 'nDCG@10', 'nDCG@20', 'P(rel=2)@5', 'Judged@20']
    """
    return [measure.name for measure in parse_measures(names)]


def measure_name(name: str) -> str:
    """ir_measures' name of one measure that has a mean over queries, to choose models by and to draw.

    Raises UserError if it is unknown, several as in "ndcg_cut.10,20", or has no mean, as "num_ret" and "gm_map".

    >>> measure_name("ndcg_cut_20")
    'nDCG@20'
    """
    names = measure_names([name])
    if len(names) > 1:
        raise UserError(f"measures: expected one, got {name} ({', '.join(names)})")
    if family(names[0]) in SUMMED | GEOMETRIC:
        raise UserError(f"measures: expected one with a mean over the queries, such as nDCG@20 or AP, got {name}")
    return names[0]


def family(name: str) -> str:
    """ir_measures' name of a measure without parameters and cut-off.

    >>> family("P(rel=2)@5")
    'P'
    """
    return re.split(r"[(@]", name, maxsplit=1)[0]


def _split(text: str) -> list[str]:
    text = RELATIVE_P if text == "relative_P" else text
    several = SEVERAL.fullmatch(text)
    return [several[1] + value for value in several[2].split(",")] if several else [text]


def _parse(text: str) -> Measure:
    try:
        return _parse_trec_eval(text)
    except UnknownMeasureError:
        from rerank.evaluation.other_measures import name_of_other

        if name := name_of_other(text):
            return Measure(name, "")
        raise


def _parse_trec_eval(text: str) -> Measure:
    """A measure that trec_eval computes; raises UnknownMeasureError for any other."""
    parts = NAME.fullmatch(text)
    family = ALIASES.get(parts["family"].lower(), parts["family"].lower()) if parts else ""
    at = parts["at"] if parts else None
    parameters = _parameters(parts["parameters"] or "") if parts else {}
    if family == "iprec" and at and float(at) <= 1 and round(float(at), 2) == float(at):
        return _with_rel(Measure(f"IPrec@{float(at)}", f"iprec_at_recall_{float(at):.2f}"), parameters)
    if at and not CUTOFF.fullmatch(at):
        raise UnknownMeasureError(f"{at} is no cut-off from 1 to 999999")
    if family == "judged" and at and not parameters:
        return Measure(f"Judged@{at}", "set_P", gains="judged", cutoff=int(at))
    if not at and (measure := _parse_set(family, parameters)):
        return measure
    for trec_name, name in (WITH_CUTOFF if at else WHOLE).items():
        if family in (trec_name.lower(), name.lower()):
            measure = Measure(f"{name}@{at}", f"{trec_name}_{at}") if at else Measure(name, trec_name)
            if name == "nDCG" and "dcg" in parameters:
                return _with_dcg(measure, parameters)
            return _with_rel(measure, parameters)
    if family in ("rr", "recip_rank") and at:  # trec_eval has no cut-off for it
        return replace(_with_rel(Measure(f"RR@{at}", "recip_rank"), parameters), cutoff=int(at))
    valid = [*(f"{name}@{at or 20}" for name in WITH_CUTOFF.values()), *WHOLE.values()]
    raise UnknownMeasureError(nearest(text, [*valid, f"Judged@{at or 20}", f"RR@{at or 20}"]))


def _parse_set(family: str, parameters: dict[str, str]) -> Measure | None:
    """Measures that ir_measures names by parameters of others: SetP(relative=True), NumRet(rel=1)."""
    if family == "setrelp" or (family in ("setp", "set_p") and parameters.get("relative") == "True"):
        family, parameters = "set_relative_p", {key: parameters[key] for key in parameters.keys() - {"relative"}}
    if family == "set_relative_p":
        measure = _with_rel(Measure("SetP", "set_relative_P"), parameters)
        return replace(measure, name=f"SetP(relative=True,rel={measure.rel})".replace(",rel=1)", ")"))
    if family in ("num_rel_ret", "numrelret") or (family in ("numret", "num_ret") and "rel" in parameters):
        measure = _with_rel(Measure("NumRet", "num_rel_ret"), parameters)
        return replace(measure, name=f"NumRet(rel={measure.rel})")
    return None


def _parameters(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    return {key.strip(): value.strip().strip("'\"") for key, _, value in pairs}


def _with_rel(measure: Measure, parameters: dict[str, str]) -> Measure:
    family, at_sign, at = measure.name.partition("@")
    rel = parameters.pop("rel", "1")
    if parameters or not CUTOFF.fullmatch(rel) or (rel != "1" and family in WITHOUT_REL):
        valid = "rel=1, rel=2, …" if family not in WITHOUT_REL else "dcg" if family == "nDCG" else "none"
        raise UnknownMeasureError(f"expected no parameter but {valid}")
    return measure if rel == "1" else replace(measure, name=f"{family}(rel={rel}){at_sign}{at}", rel=int(rel))


def _with_dcg(measure: Measure, parameters: dict[str, str]) -> Measure:
    if parameters == {"dcg": "log2"}:
        return measure
    if parameters != {"dcg": "exp-log2"}:
        raise UnknownMeasureError(
            "expected dcg='log2', with gain rel, or dcg='exp-log2', with gain 2^rel - 1, and nothing else"
        )
    return replace(measure, name=f"nDCG(dcg='exp-log2'){measure.name.removeprefix('nDCG')}", gains="exponential")
