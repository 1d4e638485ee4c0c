"""How the results were made: time, speed, memory, settings, versions, seeds and hashes."""

from collections.abc import Iterable
from typing import Any

from rerank.reports.html.elements import Html, details, join, missing, table
from rerank.runs.experiment_results import ExperimentResults, FoldResults

HASHES = 16  # hexadecimal digits that are shown


def cost_table(experiments: list[ExperimentResults]) -> Html:
    """A row a finished fold: epochs, time, speed and memory, from the log and the manifest."""
    rows = []
    for experiment in experiments:
        for fold in experiment.folds:
            if fold.facts:
                rows.append([f"{experiment.name}, fold {fold.name}", *_cost(fold)])
    if not rows:
        return missing("no manifest beside the runs says what they took")
    head = ["run", "epochs", "kept", "minutes", "tokens/s", "documents/s", "peak memory", "device", "precision"]
    return table([*head, "passages", "processes"], rows)


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
    """What an epoch's training went through a second, over all epochs that say so."""
    told = [record for record in history if what in record and "seconds" in record]
    seconds = sum(record["seconds"] for record in told)
    return f"{sum(record[what] for record in told) / seconds:,.0f}" if seconds else "–"


def settings_tables(experiments: list[ExperimentResults]) -> Html:
    """What differs between the experiments, then everything; an experiment a column."""
    flat = [_flat(experiment.settings) for experiment in experiments]
    keys = list(dict.fromkeys(key for settings in flat for key in settings))
    rows = {key: [_shown(settings.get(key)) for settings in flat] for key in keys}
    differing = [[key, *values] for key, values in rows.items() if len(set(values)) > 1 and key != "output.name"]
    head = ["setting", *(experiment.name for experiment in experiments)]
    every = details("all settings", table(head, [[key, *values] for key, values in rows.items()]))
    return join([table(head, differing), every]) if differing and len(experiments) > 1 else every


def origin_tables(experiments: list[ExperimentResults]) -> Html:
    """Versions, machine, seeds and hashes; where folds differ, every value stands there."""
    folds = [(experiment, fold) for experiment in experiments for fold in experiment.folds if fold.facts]
    if not folds:
        return missing("no manifest beside the runs says what they were made with")
    rows = []
    for part in ("versions", "machine"):
        names = dict.fromkeys(name for _, fold in folds for name in fold.facts.get(part, {}))
        rows += [[name, _distinct(fold.facts.get(part, {}).get(name) for _, fold in folds)] for name in names]
    head = [
        "run",
        "seed",
        "first stage",
        "its SHA-256",
        "that of the texts",
        "pre-training",
        "Java",
        "device",
        "commit",
    ]
    origins = []
    for experiment in experiments:
        facts = [fold.facts for fold in experiment.folds if fold.facts]
        seeds = _distinct(of.get("config", {}).get("training", {}).get("seed") for of in facts)
        first = [of.get("first_stage") or {} for of in facts]
        hashes = _distinct(of.get("sha256", "")[:HASHES] for of in first)
        texts = _distinct((of.get("documents") or {}).get("tokens", "")[:HASHES] for of in facts)
        pretrainings = _distinct((of.get("pretraining") or {}).get("hash") for of in facts)
        java = _distinct((of.get("java") or {}).get("version") for of in facts)
        commits = _distinct((of.get("commit") or "")[:HASHES] for of in facts)
        devices = _distinct(of.get("device_name") for of in facts)
        first_stage = experiment.first_stage_file.name
        origins.append([experiment.name, seeds, first_stage, hashes, texts, pretrainings, java, devices, commits])
    return join([table(head, origins), table(["with", "version"], rows)])


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}.{key}": value for name, of in settings.items() for key, value in of.items()}


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _distinct(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value not in (None, ""))) or "–"
