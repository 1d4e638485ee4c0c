"""Provenance of the results: time, speed, memory, settings, versions, seeds and hashes."""

from collections.abc import Iterable
from typing import Any

from rerank.reports.html.parts import Missing, Rows
from rerank.runs.experiment_results import ExperimentResults, FoldResults

HASHES = 16  # hexadecimal digits that are shown


def cost_table(experiments: list[ExperimentResults]) -> Rows | Missing:
    """A row per finished fold: epochs, time, speed and memory, from the log and the manifest."""
    rows = []
    for experiment in experiments:
        for fold in experiment.folds:
            if fold.facts:
                rows.append([f"{experiment.name}, fold {fold.name}", *_cost(fold)])
    if not rows:
        return Missing("no fold has a manifest with its time and memory")
    head = ["run", "epochs", "kept", "minutes", "tokens/s", "documents/s", "peak memory", "device", "precision"]
    return Rows([*head, "passages", "processes"], rows)


def _cost(fold: FoldResults) -> list[object]:
    facts = fold.facts
    memory = facts.get("peak_memory")
    return [
        facts.get("epochs", "–"),
        facts.get("best_epoch", "–"),
        f"{facts['seconds'] / 60:.1f}" if "seconds" in facts else "–",
        _rate(fold.history, "tokens"),
        _rate(fold.history, "documents"),
        f"{memory / 2**30:.2f} GiB" if memory else "–",
        facts.get("device", "–"),
        {"no": "float32"}.get(facts.get("precision", "–"), facts.get("precision", "–")),
        facts.get("passages", "–"),
        facts.get("processes", "–"),
    ]


def _rate(history: list[dict[str, Any]], what: str) -> str:
    """Units per second of training, over all epochs that recorded them."""
    timed = [record for record in history if what in record and "seconds" in record]
    seconds = sum(record["seconds"] for record in timed)
    return f"{sum(record[what] for record in timed) / seconds:,.0f}" if seconds else "–"


def settings_tables(experiments: list[ExperimentResults]) -> tuple[Rows | None, Rows]:
    """The settings that differ between the experiments, if any, and all settings; an experiment per column."""
    flat = [_flat(experiment.settings) for experiment in experiments]
    keys = list(dict.fromkeys(key for settings in flat for key in settings))
    rows = [[key, *(_shown(settings.get(key)) for settings in flat)] for key in keys]
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
    head = [
        "run",
        "seed",
        "first stage",
        "first stage's SHA-256",
        "texts' SHA-256",
        "pre-training",
        "Java",
        "device",
        "commit",
    ]
    origins = []
    for experiment in experiments:
        facts = [fold.facts for fold in experiment.folds if fold.facts]
        seeds = _distinct(fold_facts.get("config", {}).get("training", {}).get("seed") for fold_facts in facts)
        first = [fold_facts.get("first_stage") or {} for fold_facts in facts]
        hashes = _distinct(stage.get("sha256", "")[:HASHES] for stage in first)
        texts = _distinct((fold_facts.get("documents") or {}).get("tokens", "")[:HASHES] for fold_facts in facts)
        pretrainings = _distinct((fold_facts.get("pretraining") or {}).get("hash") for fold_facts in facts)
        java = _distinct((fold_facts.get("java") or {}).get("version") for fold_facts in facts)
        commits = _distinct((fold_facts.get("commit") or "")[:HASHES] for fold_facts in facts)
        devices = _distinct(fold_facts.get("device_name") for fold_facts in facts)
        first_stage = experiment.first_stage_file.name
        origins.append([experiment.name, seeds, first_stage, hashes, texts, pretrainings, java, devices, commits])
    return [Rows(head, origins), Rows(["with", "version"], rows)]


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}.{key}": value for name, values in settings.items() for key, value in values.items()}


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value not in (None, ""))) or "–"
