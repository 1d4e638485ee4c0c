"""Provenance of the results: time, speed, memory, settings, versions, seeds and hashes."""

from collections.abc import Callable, Iterable
from typing import Any

from rerank.reports.html.parts import Missing, Rows
from rerank.runs.experiment_results import ExperimentResults, FoldResults

HASHES = 16  # hexadecimal digits that are shown
ORIGINS: dict[str, Callable[[dict[str, Any]], object]] = {
    "seed": lambda facts: facts.get("config", {}).get("training", {}).get("seed"),
    "first stage's SHA-256": lambda facts: (facts.get("first_stage") or {}).get("sha256", "")[:HASHES],
    "texts' SHA-256": lambda facts: (facts.get("documents") or {}).get("tokens", "")[:HASHES],
    "pre-training": lambda facts: (facts.get("pretraining") or {}).get("hash"),
    "Java": lambda facts: (facts.get("java") or {}).get("version"),
    "device": lambda facts: facts.get("device_name"),
    "commit": lambda facts: (facts.get("commit") or "")[:HASHES],
}
"""What is read from the manifest of a fold, by the head of its column."""


def cost_table(experiments: list[ExperimentResults]) -> Rows | Missing:
    """A row per finished fold: epochs, time, speed and memory, from the log and the manifest."""
    rows = [
        [f"{experiment.name}, fold {fold.name}", *_cost(fold).values()]
        for experiment in experiments
        for fold in experiment.folds
        if fold.facts
    ]
    if not rows:
        return Missing("no fold has a manifest with its time and memory")
    return Rows(["run", *_cost(experiments[0].folds[0])], rows)


def _cost(fold: FoldResults) -> dict[str, object]:
    facts = fold.facts
    seconds, memory, precision = facts.get("seconds"), facts.get("peak_memory"), facts.get("precision", "–")
    return {
        "epochs": facts.get("epochs", "–"),
        "kept": facts.get("best_epoch", "–"),
        "minutes": "–" if seconds is None else f"{seconds / 60:.1f}",
        "tokens/s": _rate(fold.history, "tokens"),
        "documents/s": _rate(fold.history, "documents"),
        "peak memory": f"{memory / 2**30:.2f} GiB" if memory else "–",
        "device": facts.get("device", "–"),
        "precision": "float32" if precision == "no" else precision,
        "passages": facts.get("passages", "–"),
        "processes": facts.get("processes", "–"),
    }


def _rate(history: list[dict[str, Any]], what: str) -> str:
    """Units per second of training, over all epochs that recorded them."""
    timed = [record for record in history if what in record and "seconds" in record]
    seconds = sum(record["seconds"] for record in timed)
    return f"{sum(record[what] for record in timed) / seconds:,.0f}" if seconds else "–"


def settings_tables(experiments: list[ExperimentResults]) -> tuple[Rows | None, Rows]:
    """The settings that differ between the experiments, if any, and all settings; an experiment per column."""
    flat = [
        {f"{section}.{key}": value for section, values in e.settings.items() for key, value in values.items()}
        for e in experiments
    ]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    rows = [[key, *(str(settings.get(key, "")) for settings in flat)] for key in keys]
    differing = [row for row in rows if len(set(row[1:])) > 1 and row[0] != "output.name"]
    head = ["setting", *(experiment.name for experiment in experiments)]
    return (Rows(head, differing) if differing else None), Rows(head, rows)


def origin_tables(experiments: list[ExperimentResults]) -> list[Rows | Missing]:
    """Versions, machine, seeds and hashes; if folds differ, with all their values."""
    folds = [(experiment, fold) for experiment in experiments for fold in experiment.folds if fold.facts]
    if not folds:
        return [Missing("no fold has a manifest with its versions and hashes")]
    rows = []
    for part in ("versions", "machine"):
        names = dict.fromkeys(name for _, fold in folds for name in fold.facts.get(part, {}))
        rows += [[name, _distinct(fold.facts.get(part, {}).get(name) for _, fold in folds)] for name in names]
    origins = []
    for experiment in experiments:
        facts = [fold.facts for fold in experiment.folds if fold.facts]
        seed, *others = (_distinct(origin(of_fold) for of_fold in facts) for origin in ORIGINS.values())
        origins.append([experiment.name, seed, experiment.first_stage_file.name, *others])
    head = list(ORIGINS)
    return [Rows(["run", head[0], "first stage", *head[1:]], origins), Rows(["with", "version"], rows)]


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value not in (None, ""))) or "–"
