"""The cells that lie in runs/<collection>, and what they reach on the validation and the test queries of the folds."""

import json
import math
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from rerank.data.folds import read_folds
from rerank.data.trec import read_qrels, read_run
from rerank.errors import UserError
from rerank.evaluation.evaluate import evaluate
from rerank.evaluation.measures import measure_label, measure_names
from rerank.evaluation.significance import mean_and_error
from rerank.evaluation.tables.table import aligned
from rerank.types import Fold, Measurements, Qrels
from rerank.utils.files import atomic_write, file_hash, short_hash
from rerank.utils.progress import progress

MEASURES = ("P_1", "P_5", "P_10", "ndcg_cut_1", "ndcg_cut_5", "ndcg_cut_10", "ndcg", "map")
"""The columns of the paper's table "Learning-to-rank retrieval results", in its order."""
BEST = 20

LOSSES = {
    "listnet": "ListNet",
    "listmle": "ListMLE",
    "listap": "ListAP",
    "lambda_loss": "LambdaLoss",
    "approx": "Approx",
    "fastsort": "FastSort",
    "ot": "OT",
    "neuralsort": "NeuralSort",
    "softsort": "SoftSort",
    "smoothi": "SmoothI",
}
"""How the paper's tables write the losses, in their order."""


@dataclass(frozen=True)
class Cell:
    """An experiment: its name, and its settings as config.toml has them, table -> key -> value."""

    name: str
    settings: dict[str, dict[str, Any]]

    def setting(self, key: str) -> Any:
        """The value of a setting such as loss.alpha; None where it is not set."""
        table, name = key.split(".")
        return self.settings.get(table, {}).get(name)


@dataclass(frozen=True)
class Results:
    """The experiments of a collection; `folder` is runs/<collection>."""

    folder: Path
    _validated: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict, repr=False, compare=False)
    _tested: dict[tuple[str, str], Measurements] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def folds(self) -> dict[str, Fold]:
        """Each fold by its name, as kept for evaluation."""
        return {fold.name: fold for fold in read_folds(self.folder / "folds.json")}

    @cached_property
    def qrels(self) -> Qrels:
        """All judgments of the collection, those of unjudged queries left out."""
        return {query_id: judged for query_id, judged in read_qrels(self.folder / "qrels.txt").items() if judged}

    @cached_property
    def _judgments(self) -> str:
        return file_hash(self.folder / "qrels.txt")

    def cells(self) -> list[Cell]:
        """The experiments with a finished fold, by name; raises UserError where there is none."""
        found = []
        for path in sorted(self.folder.glob("*/config.toml")):
            if any(path.parent.glob("fold*/test.run")):
                found.append(Cell(path.parent.name, tomllib.loads(path.read_text(encoding="utf-8"))))
        if not found:
            raise UserError(
                f"{self.folder}: no experiment with a finished fold; expected runs/<collection> after a sweep"
            )
        return found

    def has(self, name: str, fold: str) -> bool:
        """Whether that fold of that experiment is finished."""
        return all((self.folder / name / f"fold{fold}" / file).exists() for file in ("valid.run", "test.run"))

    def validation(self, name: str, fold: str, measure: str) -> float:
        """The mean over the fold's judged validation queries.

        It is kept in valid.json beside the run, with a hash of what it was computed from.
        """
        means = self._validated.get((name, fold), {})
        if measure not in means:
            means = self._validated[name, fold] = self._means(name, fold, (*MEASURES, measure))
        return means[measure]

    def _means(self, name: str, fold: str, measures: Iterable[str]) -> dict[str, float]:
        folder = self.folder / name / f"fold{fold}"
        origin = short_hash(file_hash(folder / "valid.run"), self._judgments, self.folds[fold])
        kept = folder / "valid.json"
        there = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
        means: dict[str, float] = there["means"] if there.get("origin") == origin else {}
        if not all(measure in means for measure in measures):
            values = evaluate(self._judged(self.folds[fold].valid), read_run(folder / "valid.run"), measures)
            means |= {measure: fmean(of_query.values()) for measure, of_query in values.items()}
            with atomic_write(kept) as tmp:
                tmp.write_text(json.dumps({"origin": origin, "means": means}), encoding="utf-8")
        return means

    def test(self, name: str, fold: str) -> Measurements:
        """The values of MEASURES over the fold's judged test queries."""
        if (name, fold) not in self._tested:
            run = read_run(self.folder / name / f"fold{fold}" / "test.run")
            self._tested[name, fold] = evaluate(self._judged(self.folds[fold].test), run, MEASURES)
        return self._tested[name, fold]

    def _judged(self, query_ids: Iterable[str]) -> Qrels:
        return {query_id: self.qrels[query_id] for query_id in query_ids if query_id in self.qrels}


def best_cells(folder: Path, names: Sequence[str], folds: Sequence[str], measure: str) -> str:
    """The table of the best of these experiments by their mean validation value, of those that have all these folds."""
    results = Results(folder)
    if measure == "loss":  # which says nothing across losses
        measure = "ndcg"
    (measure,) = measure_names([measure])
    whole = [name for name in names if all(results.has(name, fold) for fold in folds)]
    values = {
        name: mean_and_error([results.validation(name, fold, measure) for fold in folds])
        for name in progress(whole, len(whole), "validation values")
    }
    ranked = sorted(values, key=lambda name: -values[name][0])[:BEST]
    head = f"{folder}: the best of {len(whole)} finished cells"
    over = f"mean ± standard error over {len(folds)} folds" if len(folds) > 1 else f"fold {folds[0]}"
    column = f"{measure_label(measure)} of validation"
    return f"{head}, {over}\n\n{aligned([['cell', column], *([name, figure(*values[name])] for name in ranked)])}\n"


def loss_label(name: str) -> str:
    """How tables write a loss: as in the paper, or its own name."""
    return LOSSES.get(name, name)


def figure(mean: float, error: float, digits: int = 4) -> str:
    """How tables write a mean and its standard error, which is NaN where it is not known."""
    return f"{mean:.{digits}f}" if math.isnan(error) else f"{mean:.{digits}f} ± {error:.{digits}f}"
