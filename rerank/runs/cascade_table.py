"""What each stage of a cascade cost and gained: the facts in its manifest, and a table of them."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from rerank.evaluation.tables.table import aligned

MEASURES = ("nDCG@10", "nDCG@20", "RR@10")
"""What a stage gained is measured by."""


class Cost(TypedDict):
    """What a model scored, the tokens of all its passages, and the seconds, opening and tokenising included."""

    queries: int
    documents: int
    tokens: int
    seconds: float


class Stage(TypedDict):
    """A stage: the run that it gives and its means; the model that made it and its cost, but for the first stage.

    `depth` is how many documents of each query it has scored, or of the first stage, given to the first model.
    """

    run: str
    depth: int
    means: dict[str, float]
    model: NotRequired[str]
    sha256: NotRequired[str]
    cost: NotRequired[Cost]


def cascade_rows(stages: Sequence[Stage]) -> list[list[str]]:
    """A row for each stage below the head; after each mean, its gain over the stage before."""
    measures = [name for name in MEASURES if all(name in stage["means"] for stage in stages)]
    rows = [["stage", "depth", "documents", "tokens", "seconds", *measures]]
    for number, stage in enumerate(stages):
        cost = stage.get("cost")
        name = f"{number}: {stage['model']}" if "model" in stage else stage["run"]
        spent = [f"{cost['documents']:,}", f"{cost['tokens']:,}", f"{cost['seconds']:.1f}"] if cost else ["–"] * 3
        means = []
        for measure in measures:
            gain = stage["means"][measure] - stages[number - 1]["means"][measure] if number else None
            means.append(f"{stage['means'][measure]:.4f}" + (f" ({gain:+.4f})" if gain is not None else ""))
        rows.append([name, str(stage["depth"]), *spent, *means])
    return rows


def cascade_table(stages: Sequence[Stage], judged: int) -> str:
    """The rows as text, with a line on what the means are over."""
    over = (
        f"Means over the {judged} judged queries of the run; in brackets, the gain over the stage before."
        if judged
        else "No query of the run is judged, so that the gain of each stage is not known."
    )
    return f"{aligned(cascade_rows(stages))}\n\n{over}"
