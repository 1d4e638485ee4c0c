"""Composes stages with `>>` and `+`, as in PyTerrier."""

from collections.abc import Mapping
from dataclasses import replace

from rerank.pipelines.stages.base import STAGES, Stage, below, is_stage, takes_stages
from rerank.utils.errors import UserError

FUSION = "fusion"
"""The kind of stage that `+` adds."""


class Composable:
    """Gives the settings of a stage the operators `>>` (is re-ranked by) and `+` (is fused with)."""

    def __rshift__(self, other: object) -> "Stages":
        return _as_stages(self).__rshift__(other)

    def __add__(self, other: object) -> "Stages":
        return _as_stages(self).__add__(other)


class Stages(dict[str, Stage], Composable):
    """Named stages, each after the stages below it; the last stage answers. `rerank.Pipeline(stages)` checks them.

    >>> from rerank.pipelines.stages import BM25Stage, CrossEncoderStage, DenseStage
    >>> list((BM25Stage() + DenseStage()) >> CrossEncoderStage(depth=20))
    ['bm25', 'dense', 'fusion', 'cross-encoder']
    """

    def __rshift__(self, other: object) -> "Stages":
        """These stages, with `other` on top of the last one; raises UserError if `other` does not re-rank."""
        if not is_stage(other) or not takes_stages(other):
            raise UserError(f">> {_shown(other)}: expected a stage that re-ranks the documents of another one")
        if other.of:
            raise UserError(f">> {_shown(other)}: already has of = {other.of!r}; leave it out, as >> sets it")
        name = list(self)[-1]
        of = name if isinstance(other.of, str) else (name,)
        return Stages(self | {_free_name(other.kind, self): replace(other, of=of)})

    def __add__(self, other: object) -> "Stages":
        """The stages of both and the fusion of their last stages; a + b + c is one fusion of three."""
        right = _as_stages(other)
        joined, names = Stages(self), dict[str, str]()
        for name, stage in right.items():
            renamed = tuple(names[lower] for lower in below(stage))
            if renamed != below(stage):
                stage = replace(stage, of=renamed[0] if isinstance(stage.of, str) else renamed)
            same = joined.get(name) == stage
            names[name] = name if same else _free_name(name, joined)
            joined[names[name]] = stage
        last, added = list(self)[-1], names[list(right)[-1]]
        fused, fuse = joined[last], STAGES[FUSION]
        is_used = added == last or any(last in below(stage) for stage in joined.values())
        if fused == fuse(fused.of) and not is_used:  # as + made it
            joined.pop(last)
            return Stages(joined | {last: fuse((*fused.of, added))})
        return Stages(joined | {_free_name(FUSION, joined): fuse((last, added))})


def _as_stages(stage: object) -> Stages:
    """A stage, named by its kind; raises UserError if it is no stage, or needs stages below."""
    if isinstance(stage, Stages):
        return stage
    if not is_stage(stage):
        raise UserError(f"{_shown(stage)}: is no stage; expected settings such as BM25Stage()")
    if takes_stages(stage):
        raise UserError(f"{_shown(stage)}: has no stage below it; put one before it with >>")
    return Stages({stage.kind: stage})


def _free_name(name: str, taken: Mapping[str, object]) -> str:
    """The name, or name-2, name-3, … if it is taken."""
    names = (name if count == 1 else f"{name}-{count}" for count in range(1, len(taken) + 2))
    return next(free for free in names if free not in taken)


def _shown(stage: object) -> str:
    return stage.__name__ if isinstance(stage, type) else str(getattr(stage, "kind", repr(stage)))
