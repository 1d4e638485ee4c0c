"""Names of measures, as in ir_measures or trec_eval, and the package that computes each measure."""

import contextlib
import json
import math
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from rerank.utils.errors import UserError, nearest
from rerank.utils.texts import check_name

if TYPE_CHECKING:
    from ir_measures.measures import Measure as IrMeasure
    from ir_measures.providers import Provider

DEFAULT_MEASURES = ("P@1", "P@5", "P@10", "P@20", "AP", "nDCG@1", "nDCG@5", "nDCG@10", "nDCG@20", "nDCG")
"""The measures of Table 4, "Text-based retrieval results on Robust04", of Thonet et al. 2021, in its order."""

HIGHEST_GAIN = 4095
"""pytrec_eval's time for nDCG grows with the square of the highest gain; with this gain a query takes 15 ms."""
HIGHEST_CUTOFF = 999_999
"""The highest cut-off that trec_eval accepts."""
NAME = re.compile(r"(?P<family>\w+)(?:\((?P<parameters>[^()]*)\))?(?:@(?P<at>[0-9]+(?:\.[0-9]+)?))?")


@dataclass(frozen=True)
class Measure:
    """A measure of ir_measures, and how to compute it.

    `name` is ir_measures' name. `provider` is ir_measures' interface to the package that computes `computed`, the
    measure without its gains. `gains` maps a grade to its gain, if they differ. Grades above `highest_grade` raise an
    error. Measures with the same `group` are computed together.
    """

    name: str
    computed: "IrMeasure"
    provider: "Provider"
    group: str
    gains: Mapping[int, int]
    highest_grade: float


def parse_measures(names: Iterable[str]) -> list[Measure]:
    """The distinct measures of these names, in their order.

    Raises UserError that lists all unknown names, and TypeError for one name alone.
    """
    if isinstance(names, str):
        raise TypeError(f"measures: expected a sequence of names, got one text; take [{names!r}]")
    if not isinstance(names, Iterable):
        raise TypeError(f"measures: expected a sequence of names, got {type(names).__name__}")
    names = [check_name(f"measures[{place}]", name) for place, name in enumerate(names)]
    measures: dict[str, Measure] = {}
    unknown = []
    for name in map(str.strip, names):
        try:
            measures |= {measure.name: measure for measure in map(_computed, _parse(name))}
        except ValueError as error:
            unknown.append(f"{name!r} ({error})")
    if unknown:
        raise UserError(f"measures: unknown {', '.join(unknown)}")
    return list(measures.values())


def measure_names(names: Iterable[str]) -> list[str]:
    """ir_measures' names of measures that are written as in ir_measures or trec_eval.

    Raises UserError that lists all unknown measures.

    >>> measure_names(["P_20", "map", "ndcg_cut.10,20", "nDCG@20", "P(rel=2)@5", "Judged@20"])
    ['P@20', 'AP', 'nDCG@10', 'nDCG@20', 'P(rel=2)@5', 'Judged@20']
    """
    return [measure.name for measure in parse_measures(names)]


def measure_name(name: str) -> str:
    """ir_measures' name of a single measure, for choosing models and for charts.

    Raises UserError for an unknown measure, and for several as in "ndcg_cut.10,20".

    >>> measure_name("ndcg_cut_20")
    'nDCG@20'
    """
    measures = parse_measures([name])
    if len(measures) > 1:
        raise UserError(f"measures: expected one, got {name} ({', '.join(measure.name for measure in measures)})")
    return measures[0].name


def _parse(text: str) -> "list[IrMeasure]":
    """The ir_measures of a name; a name of trec_eval, such as ndcg_cut.10,20, may give several.

    Raises ValueError, with a reason or a remedy, for an unknown name.
    """
    with contextlib.suppress(ValueError):
        return list(_ir_measures().parse_trec_measure(text))
    # ir_measures.parse_measure is not used: it does not work on Python 3.14.
    names = _ir_measures().measures.registry
    written = NAME.fullmatch(text)
    found = {name.lower(): measure for name, measure in names.items()}.get(written["family"].lower() if written else "")
    if not written or found is None:
        raise ValueError(nearest(text, [f"{name}@20" if "@" in text else name for name in names]))
    if "gains" in (written["parameters"] or ""):
        raise ValueError("expected no gains=, but for dcg='exp-log2'")
    try:
        parameters = _parameters(written["parameters"] or "")
        if at := written["at"]:
            parameters[found.AT_PARAM] = found.SUPPORTED_PARAMS[found.AT_PARAM].dtype(at)
        measure = found(**parameters)
        measure.validate_params()
    except (AssertionError, KeyError, ValueError) as error:
        raise ValueError(f"expected other parameters: {_takes(found)}") from error
    return [measure]


def _parameters(text: str) -> dict[str, bool | int | float | str]:
    """The parameters in a measure's name; raises ValueError for invalid ones.

    >>> _parameters("rel=2, judged_only=True, dcg='exp-log2'")
    {'rel': 2, 'judged_only': True, 'dcg': 'exp-log2'}
    """
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, _, value = (word.strip() for word in part.partition("="))
        found[key] = json.loads({"True": "true", "False": "false"}.get(value, value.replace("'", '"')))
    return found


def _computed(measure: "IrMeasure") -> Measure:
    """The `Measure` of a measure of ir_measures; raises ValueError if it cannot be computed."""
    _check_bounds(measure.params)
    computed = type(measure)(**{key: value for key, value in measure.params.items() if key != "dcg"})
    gains, highest = _gains(measure)
    provider = _provider(computed)
    parameters = {key: value for key, value in measure.params.items() if key != measure.AT_PARAM}
    group = repr(parameters) if provider.NAME == "pytrec_eval" else str(measure)
    return Measure(str(measure), computed, provider, group, gains, highest)


def _takes(measure: "IrMeasure | type[IrMeasure]") -> str:
    takes = [f"@{name}" if name == measure.AT_PARAM else f"{name}=" for name in measure.SUPPORTED_PARAMS]
    return f"it takes {', '.join(takes) or 'none'}"


def _check_bounds(parameters: dict[str, float]) -> None:
    """Raises ValueError for parameters out of trec_eval's range: a cut-off of 0 makes pytrec_eval end the process."""
    if any(isinstance(value, float) and not math.isfinite(value) for value in parameters.values()):
        raise ValueError("expected finite numbers")
    for name, highest in (("cutoff", HIGHEST_CUTOFF), ("rel", HIGHEST_GAIN)):
        if not 1 <= parameters.get(name, 1) <= highest:
            raise ValueError(f"expected a {name} from 1 to {highest}, got {parameters[name]}")
    recall = parameters.get("recall", 0.0)
    if not 0 <= recall <= 1 or round(recall, 2) != recall:
        raise ValueError(f"expected a recall from 0.00 to 1.00, got {recall}")


def _gains(measure: "IrMeasure") -> tuple[dict[int, int], float]:
    """Grade -> gain for grades that differ from their gain, and the highest valid grade."""
    if measure.params.get("dcg") == "exp-log2":
        highest = HIGHEST_GAIN.bit_length()
        return {grade: 2**grade - 1 for grade in range(highest + 1)}, highest
    highest_grades = {"nDCG": HIGHEST_GAIN, "ERR": 4}  # gdeval computes ERR for grades up to 4
    return {}, highest_grades.get(str(measure.NAME), math.inf)


def _provider(measure: "IrMeasure") -> "Provider":
    """The first package of ir_measures' order that computes the measure and is installed."""
    # pyndeval needs subtopics, which judgments lack. Accuracy divides by 0 if all documents are relevant.
    excluded = ("pyndeval", "accuracy")
    known = [provider for provider in _ir_measures().DefaultPipeline.providers if provider.NAME not in excluded]
    providers: list[Provider] = [provider for provider in known if provider.supports(measure)]
    if not providers:
        raise ValueError(f"ir_measures does not compute it with these parameters; {_takes(measure)}")
    if available := [provider for provider in providers if provider.is_available()]:
        return available[0]
    raise ValueError(f"it needs another package: {providers[0].install_instructions()}")


def _ir_measures() -> ModuleType:
    with warnings.catch_warnings():  # Python warns when it compiles some packages on their first import
        warnings.simplefilter("ignore")
        import ir_measures
    return ir_measures
