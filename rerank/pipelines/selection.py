"""Selects the stage that answers by queries that taught the stages nothing."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rerank.evaluation.evaluate import values_of
from rerank.evaluation.weights import Values, is_ahead
from rerank.pipelines.crossfit import CrossFitting
from rerank.pipelines.graph import prefix
from rerank.pipelines.stages.cross_encoder import CrossEncoderStage
from rerank.utils.progress import log


@dataclass(frozen=True)
class Selected:
    """The stage that answers, and the values of held-out queries by which it was selected.

    `values` are name of the stage -> its values by query, {} without judgments. `nested` has the values of the stage
    that the other parts' queries selected.
    """

    answer: str
    values: Mapping[str, Values]
    nested: Values


def select(fitting: CrossFitting, tested: Sequence[str], allowed: Sequence[str], measure: str) -> Selected:
    """Ranks the queries of the tested parts by all stages, and selects one of those `allowed` (`choose`).

    The queries of all other parts select the stage that answers for a part. The queries of all tested parts select the
    stage that answers in the end; a single tested part does not, as no other query would be left to measure it.
    Without a tested part the last stage answers.
    """
    stages = fitting.stages
    costly = [
        name for name in stages if any(one.kind == CrossEncoderStage.kind for one in prefix(stages, name).values())
    ]
    values: dict[str, dict[str, float]] = {name: {} for name in stages if tested}
    nested, answer = dict[str, float](), allowed[-1]
    for part in tested:
        own = {name: _values(fitting, name, part, frozenset({part}), measure) for name in stages}
        answer = choose({name: _inner_values(fitting, name, part, measure) for name in allowed}, costly)
        log.info(f"part {part}: the other queries choose {answer}")
        nested |= own[answer]
        for name in stages:
            values[name] |= own[name]
    if len(tested) > 1:
        answer = choose({name: values[name] for name in allowed}, costly)
    return Selected(answer, values, nested)


def choose(values: Mapping[str, Values], costly: Collection[str] = ()) -> str:
    """The last stage, unless one of the others is ahead of it by more than 1.5 standard errors; then the best of these.

    `values` are name -> the values of its ranking by query, in the order of the stages; of equal stages the first is
    taken. The differences are those over the queries that both have. So chance does not choose among stages that are
    alike, as it does with the best mean of a few queries. A stage of `costly`, one with a cross-encoder, takes many
    times as long for a query: it is taken only if it is ahead of the best of the others.
    """
    cheap = {name: of for name, of in values.items() if name not in costly}
    chosen = next(iter(values))
    if cheap:
        last = list(cheap.values())[-1]
        good = {name: fmean(of.values()) for name, of in cheap.items() if of == last or is_ahead(of, last)}
        chosen = max(good, key=good.__getitem__)
    for name, of in values.items():
        if name in costly and is_ahead(of, values[chosen]):
            chosen = name
    return chosen


def _values(fitting: CrossFitting, name: str, part: str, without: frozenset[str], measure: str) -> dict[str, float]:
    return values_of(fitting.run(name, part, without), fitting.world.collection.qrels, fitting.parts[part], measure)


def _inner_values(fitting: CrossFitting, name: str, tested: str, measure: str) -> dict[str, float]:
    """The values of the other parts' queries by stages that learned from neither them nor the tested part.

    Of a stage that is fitted once a fold, they are those of the validation queries.
    """
    if fitting.is_expensive(name):
        without = frozenset({tested})
        return _values(fitting, name, fitting.valid_part(without), without, measure)
    found: dict[str, float] = {}
    for part in fitting.parts:
        if part != tested:
            found |= _values(fitting, name, part, frozenset({tested, part}), measure)
    return found
