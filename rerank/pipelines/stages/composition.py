"""Stages composed with `>>` and `+`, as in PyTerrier: named stages of which the last one answers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rerank.pipelines.stages.base import STAGES, Stage, below, takes_stages
from rerank.utils.errors import UserError

FUSION = "fusion"
"""The kind of stage that `+` adds."""


class Composable:
    """Gives the settings of a stage the operators `>>` (is ranked again by) and `+` (is fused with)."""

    def __rshift__(self, other: Any) -> "Stages":
        return _alone(self).__rshift__(other)

    def __add__(self, other: Any) -> "Stages":
        return _alone(self).__add__(other)


class Stages(dict[str, Stage], Composable):
    """Named stages, each after those below it; `rerank.Pipeline(stages)` checks them.

    >>> from rerank.pipelines.stages import BM25Stage, CrossEncoderStage, DenseStage
    >>> list((BM25Stage() + DenseStage()) >> CrossEncoderStage(depth=20))
    ['bm25', 'dense', 'fusion', 'cross-encoder']
    """

    def __rshift__(self, other: Any) -> "Stages":
        """These stages, and above the last one a stage that re-ranks; raises UserError for one that retrieves."""
        if not (hasattr(other, "kind") and takes_stages(other)):
            raise UserError(f">> {_shown(other)}: expected a stage that ranks what another one has found")
        if other.of:
            raise UserError(f">> {_shown(other)}: has of = {other.of!r} already; leave it out, as >> sets it")
        name = list(self)[-1]
        of = name if isinstance(other.of, str) else (name,)
        return Stages(self | {_free_name(other.kind, self): replace(other, of=of)})

    def __add__(self, other: Any) -> "Stages":
        """The stages of both, and above them the fusion of their last ones; a + b + c is one fusion of three."""
        right = other if isinstance(other, Stages) else _alone(other)
        joined, names = Stages(self), dict[str, str]()
        for name, stage in right.items():
            renamed = tuple(names[one] for one in below(stage))
            if renamed != below(stage):
                stage = replace(stage, of=renamed[0] if isinstance(stage.of, str) else renamed)  # type: ignore[type-var]
            same = joined.get(name) == stage
            names[name] = name if same else _free_name(name, joined)
            joined[names[name]] = stage
        last, added = list(self)[-1], names[list(right)[-1]]
        fused = joined[last]
        fuse = STAGES[FUSION]
        if fused.kind == FUSION and fused == fuse(fused.of):
            joined.pop(last)
            return Stages(joined | {last: fuse((*fused.of, added))})
        return Stages(joined | {_free_name(FUSION, joined): fuse((last, added))})


def _alone(stage: Any) -> Stages:
    """A stage by its kind; raises UserError for what is no stage, and for one that misses the stages below."""
    if isinstance(stage, Stages):
        return stage
    if not hasattr(stage, "kind"):
        raise UserError(f"{_shown(stage)}: is no stage; expected the settings of one, such as BM25Stage()")
    if takes_stages(stage):
        raise UserError(f"{_shown(stage)}: has no stage below it; put one before it with >>")
    return Stages({stage.kind: stage})


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    """The name, or name-2, name-3, … if it is taken."""
    names = (name if count == 1 else f"{name}-{count}" for count in range(1, len(taken) + 2))
    return next(one for one in names if one not in taken)


def _shown(stage: Any) -> str:
    return str(getattr(stage, "kind", repr(stage)))
