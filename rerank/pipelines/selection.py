"""Selects the stage that answers, on held-out queries."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rerank.evaluation.evaluate import values_of
from rerank.evaluation.weights import Values, is_ahead
from rerank.pipelines.crossfit import CrossFitting
from rerank.pipelines.graph import prefix
from rerank.pipelines.stages.base import Stage
from rerank.pipelines.stages.cross_encoder import CrossEncoderStage
from rerank.utils.progress import log


@dataclass(frozen=True)
class Selected:
    """The stage that answers, and the measure on held-out queries.

    values: name of a stage -> its values by query; {} without judgments.
    nested: for each query, the value of the stage that the queries of the other parts selected.
    inner: name of a part -> name of a stage -> its values by query of the other parts, which selected for the part.
    tested: the queries of each tested part.
    """

    answer: str
    values: Mapping[str, Values]
    nested: Values
    inner: Mapping[str, Mapping[str, Values]]
    tested: Mapping[str, Sequence[str]]


def select(fitting: CrossFitting, tested: Sequence[str], allowed: Sequence[str], measure: str) -> Selected:
    """Ranks the queries of the tested parts by all stages, and selects one of the `allowed` stages (see `choose`).

    For each part, the queries of the other parts select a stage, whose values are `nested`. The queries of all tested
    parts select the stage that answers. If only one part is tested, its queries do not select, as no others are left to
    measure the choice. Without a tested part, the last stage answers.
    """
    stages = fitting.stages
    values: dict[str, dict[str, float]] = {name: {} for name in stages if tested}
    inner = {}
    for part in tested:
        inner[part] = {name: _inner_values(fitting, name, part, measure) for name in stages}
        for name in stages:
            values[name] |= _values(fitting, name, part, frozenset({part}), measure)
    queries_of = {part: list(fitting.parts[part]) for part in tested}
    return choose_all(values, inner, queries_of, allowed, costly_stages(stages))


def costly_stages(stages: Mapping[str, Stage]) -> list[str]:
    """The stages that are cross-encoders or are fitted once a part, and those above one."""

    def is_costly(settings: Stage) -> bool:
        return settings.kind == CrossEncoderStage.kind or settings.learns == "expensively"

    return [name for name in stages if any(map(is_costly, prefix(stages, name).values()))]


def choose_all(
    values: Mapping[str, Values],
    inner: Mapping[str, Mapping[str, Values]],
    tested: Mapping[str, Sequence[str]],
    allowed: Sequence[str],
    costly: Collection[str],
) -> Selected:
    """Chooses the stage of each part by the `inner` values, and the stage that answers by all `values`.

    `tested` has the queries of each tested part; the others are as in `Selected` and `choose`.
    """
    nested, answer = dict[str, float](), allowed[-1]
    for part, query_ids in tested.items():
        answer = choose({name: inner[part][name] for name in allowed}, costly)
        log.info(f"part {part}: the queries of the other parts choose {answer}")
        nested |= {query_id: values[answer][query_id] for query_id in query_ids}
    if len(tested) > 1:
        answer = choose({name: values[name] for name in allowed}, costly)
    return Selected(answer, values, nested, inner, tested)


def choose(values: Mapping[str, Values], costly: Collection[str] = ()) -> str:
    """Takes the last stage unless another beats it by 1.5 standard errors; then the best of these.

    `values` are name of a stage -> its values by query, in the order of the stages; of equal stages the first is taken.
    Differences are over the queries that both have. The margin keeps chance from choosing among similar stages, as the
    best mean of a few queries would. A `costly` stage (with a cross-encoder or a fine-tuned encoder) is slower or
    larger: it is taken only if it beats the best other stage by the same margin.
    """
    cheap = {name: by_query for name, by_query in values.items() if name not in costly}
    chosen = next(iter(values))
    if cheap:
        last = list(cheap.values())[-1]
        good = {
            name: fmean(by_query.values())
            for name, by_query in cheap.items()
            if by_query == last or is_ahead(by_query, last)
        }
        chosen = max(good, key=good.__getitem__)
    for name, by_query in values.items():
        if name in costly and is_ahead(by_query, values[chosen]):
            chosen = name
    return chosen


def _values(fitting: CrossFitting, name: str, part: str, without: frozenset[str], measure: str) -> dict[str, float]:
    return values_of(fitting.run(name, part, without), fitting.world.collection.qrels, fitting.parts[part], measure)


def _inner_values(fitting: CrossFitting, name: str, tested: str, measure: str) -> dict[str, float]:
    """The values of the other parts' queries by stages that learned neither from them nor from the tested part.

    For a stage that is fitted once a part, only the values of the validation queries.
    """
    if fitting.is_expensive(name):
        without = frozenset({tested})
        return _values(fitting, name, fitting.valid_part(without), without, measure)
    found: dict[str, float] = {}
    for part in fitting.parts:
        if part != tested:
            found |= _values(fitting, name, part, frozenset({tested, part}), measure)
    return found
