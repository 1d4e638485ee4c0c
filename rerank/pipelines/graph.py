"""Orders the stages of a pipeline, each after the stages below it; reads and writes pipelines as TOML."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from rerank.experiments.runs.settings import read_toml, toml_lines
from rerank.pipelines.stages.base import Stage, below, takes_stages
from rerank.pipelines.stages.features import FeaturesStage
from rerank.pipelines.stages.fusion import FusionStage
from rerank.pipelines.stages.tables import stage_of, table_of
from rerank.utils.errors import UserError, nearest
from rerank.utils.parameters import Pattern

NAME = Pattern(
    r"(?!(?:nested|runs)$)[\w=+-][\w.=+-]*",
    "letters, digits and . = + - _ only, and neither nested nor runs, which name a row and a folder of the evidence",
    longest=100,
)


def in_order(stages: Mapping[str, Stage], where: str = "pipeline") -> dict[str, Stage]:
    """Sorts the stages topologically: each after the stages below it, otherwise in the given order; the last answers.

    Raises UserError, prefixed with `where`, for a pipeline without stages, a name that is no file name, a missing stage
    below, a circle, a wrong number of stages below, several stages that are below no other, as only one can answer, and
    a stage that no query is left to train on.
    """
    if not stages:
        raise UserError(f"{where}: has no stage; expected one or more")
    for name, settings in stages.items():
        _check_stage(name, settings, stages, f"{where}: stage {name}")
    ordered: dict[str, Stage] = {}
    while left := [name for name in stages if name not in ordered]:
        ready = [name for name in left if all(lower in ordered for lower in below(stages[name]))]
        if not ready:
            raise UserError(f"{where}: stages {', '.join(left)} need each other; expected no circle")
        ordered[ready[0]] = stages[ready[0]]
    _expect_queries_to_train_on(ordered, where)
    used = {lower for settings in stages.values() for lower in below(settings)}
    answers = [name for name in ordered if name not in used]
    if len(answers) > 1:
        raise UserError(
            f"{where}: stages {', '.join(answers)} are below no other, so each could answer; expected one: fuse them, "
            "or leave the others out"
        )
    return {name: stages[name] for name in [*(name for name in ordered if name != answers[0]), answers[0]]}


def _check_stage(name: str, settings: Stage, stages: Mapping[str, Stage], where: str) -> None:
    try:
        NAME(str, name)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    names = below(settings)
    if takes_stages(settings) and not names:
        raise UserError(f"{where}: of: is missing; expected the name of a stage below it")
    for lower in names:
        if lower not in stages:
            raise UserError(f"{where}: of {lower}: no such stage; {nearest(lower, [n for n in stages if n != name])}")
    if len(set(names)) < len(names):
        raise UserError(f"{where}: of {', '.join(names)}: a stage is named twice; expected each once")
    try:
        if hasattr(settings, "check"):
            settings.check()
    except ValueError as error:
        raise UserError(f"{where}: of {', '.join(names) or 'none'}: {error}") from error
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _expect_queries_to_train_on(ordered: Mapping[str, Stage], where: str) -> None:
    """Raises UserError for a stage with training queries above one that is fitted once a part.

    The lower one ranks only validation queries, from which a fusion, for example, can learn.
    """
    fitted_once = set[str]()  # the stages that learn expensively, and those above one
    for name, settings in ordered.items():
        lower = [other for other in below(settings) if other in fitted_once]
        is_expensive = settings.learns == "expensively"
        if lower and (is_expensive or (settings.learns != "nothing" and hasattr(settings, "training"))):
            raise UserError(
                f"{where}: stage {name}: of {lower[0]}: that is fitted once a part and ranks only validation queries, "
                f"so {settings.kind} has no query to train on; expected stages below {lower[0]}, or take a fusion"
            )
        if lower or is_expensive:
            fitted_once.add(name)


def prefix(stages: Mapping[str, Stage], answer: str) -> dict[str, Stage]:
    """The stages that `answer` needs, and itself, in their order."""
    needed = {answer}
    for name in reversed(list(stages)):
        if name in needed:
            needed |= set(below(stages[name]))
    return {name: settings for name, settings in stages.items() if name in needed}


def without(stages: Mapping[str, Stage], names: Collection[str], where: str = "pipeline") -> dict[str, Stage]:
    """The pipeline without the stages of these names; the stages above them take what is below them.

    A stage that re-ranks one stage re-ranks the one below it instead. A stage of several loses the input; a fusion or a
    stage of the kind features with one input left goes too. Raises UserError for an unknown name, and as `in_order`.

    >>> from rerank.pipelines.defaults import default_stages
    >>> found = without(default_stages("encoder", "", 1000), ["neighbours", "adapter"])
    >>> list(found), found["similar"].of, found["combined"].of[-2:]
    (['bm25', 'dense', 'feedback', 'fused', 'late', 'similar', 'combined'], 'late', ('late', 'similar'))
    """
    for name in names:
        if name not in stages:
            raise UserError(f"{where} {name}: no such stage; {nearest(name, stages)}")
    kept: dict[str, Stage] = {}
    instead: dict[str, str] = {}  # name of a stage that goes -> the stage below it that is re-ranked instead
    for name, settings in stages.items():
        lower = below(settings)
        nearest_below = [other for other in (instead.get(n, n) for n in lower) if other in kept]
        # A stage above one stage takes the next lower one in its place; a stage above several does without it.
        inputs = nearest_below if len(lower) == 1 else [other for other in lower if other in kept]
        is_alone = isinstance(settings, FusionStage | FeaturesStage) and len(inputs) < 2
        if name in names or is_alone or (lower and not inputs):
            if nearest_below:
                instead[name] = nearest_below[-1]
        else:
            kept[name] = settings if inputs == list(lower) else _on(settings, inputs)
    return in_order(kept, where)


def _on(settings: Stage, inputs: list[str]) -> Stage:
    """The settings with other stages below; a fusion keeps their weights."""
    of = inputs[0] if isinstance(settings.of, str) else tuple(inputs)
    if isinstance(settings, FusionStage) and settings.weights:
        weights = dict(zip(settings.of, settings.weights, strict=True))
        return replace(settings, of=tuple(inputs), weights=tuple(weights[name] for name in inputs))
    changed: Stage = replace(settings, of=of)
    return changed


def read_pipeline(path: Path) -> dict[str, Stage]:
    """Reads the stages of a TOML file: a table [stages.NAME] for each, with `kind`, `of` and the fields of that kind.

    Raises UserError for a file that is missing or not TOML, and for stages that are no pipeline (see `in_order`).
    """
    tables = read_toml(path)
    stages = tables.pop("stages", {})
    if tables:
        raise UserError(f"{path}: [{next(iter(tables))}]: expected only tables [stages.NAME]")
    if not isinstance(stages, dict) or not all(isinstance(table, dict) for table in stages.values()):
        raise UserError(f"{path}: stages: expected tables [stages.NAME]")
    made = {name: stage_of(table, f"{path}: [stages.{name}]") for name, table in stages.items()}
    return in_order(made, str(path))


def as_toml(stages: Mapping[str, Stage]) -> str:
    """The stages as TOML that `read_pipeline` reads back."""
    tables = {name: table_of(settings) for name, settings in stages.items()}
    return "\n".join(line for name, table in tables.items() for line in toml_lines(["stages", name], table))
