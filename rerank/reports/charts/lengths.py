"""Gain by length: how re-ranking moves relevant documents, by their number of tokens."""

from typing import Any, NamedTuple

import numpy as np

from rerank.data.ragged import NUMBERS
from rerank.data.tokens import read_store
from rerank.data.trec import ranked
from rerank.reports.charts.drawing import QUIET, SERIES, legend_above
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import Results
from rerank.utils.errors import UserError
from rerank.utils.resumable import SUFFIX as UNFINISHED

TOP = 20
BOUNDS = (-1, 128, 256, 512, 800)  # 512 is the usual limit of encoders, 800 the cut of Thonet et al.


class Length(NamedTuple):
    """The relevant candidates of more than `over` tokens, and at most `to` (None: any).

    `before` and `after` are the shares of them among the first TOP.
    """

    over: int
    to: int | None
    relevant: int
    before: float
    after: float


def token_lengths(experiment: ExperimentResults) -> dict[str, int]:
    """doc_id -> tokens before truncation, from the token store that the experiment used.

    Raises UserError if the store was removed, or no manifest has its statistics.
    """
    statistics = next((fold.facts["texts"] for fold in experiment.folds if "texts" in fold.facts), None)
    if statistics is None:
        raise UserError(f"{experiment.name}: no manifest has statistics of the texts, so the lengths are unknown")
    tokens = experiment.folder.collection.tokens
    stores = {file.parent for file in tokens.glob(f"*/{NUMBERS}")}
    for folder in sorted(folder for folder in stores if folder.suffix != UNFINISHED):
        store = read_store(folder)
        if store.statistics().items() <= statistics.items():
            return dict(zip(store.rows, store.lengths.tolist(), strict=True))
    raise UserError(f"{tokens}: the tokenised documents of {experiment.name} are missing, so the lengths are unknown")


def by_length(results: Results, experiment: ExperimentResults) -> list[Length]:
    """The candidates in bins that begin above each of BOUNDS; a bin without relevant documents is left out.

    Raises UserError if the lengths or the first stage are unknown.
    """
    lengths, candidates = token_lengths(experiment), experiment.candidates()
    rows = []  # of each relevant document: its length, and whether it is among the first TOP, before and after
    for query_id, judged in results.judged(experiment.run).items():
        before, after = (ranked(run.get(query_id, {})) for run in (candidates, experiment.run))
        top_before, top_after = before[:TOP], after[:TOP]
        known = {doc_id for doc_id in after if judged.get(doc_id, 0) > 0 and doc_id in lengths} & set(before)
        rows += [(lengths[doc_id], doc_id in top_before, doc_id in top_after) for doc_id in known]
    tokens, old, new = np.array(rows).reshape(-1, 3).T
    bins = []
    for over, to in zip(BOUNDS, [*BOUNDS[1:], None], strict=True):
        inside = (tokens > over) & (tokens <= (to or np.inf))
        if inside.any():
            bins.append(Length(over, to, int(inside.sum()), float(old[inside].mean()), float(new[inside].mean())))
    if not bins:
        raise UserError(
            f"{experiment.name}: no candidate of a tested query is relevant, so there is no chart of lengths"
        )
    return bins


def length_label(length: Length) -> str:
    """Such as 129–256, or over 800."""
    return f"{length.over + 1}–{length.to}" if length.to else f"over {length.over}"


def draw_lengths(figure: Any, data: list[Length]) -> None:
    """Two bars per bin: the share of its relevant documents in the first TOP, before and after."""
    axes = figure.subplots()
    positions = np.arange(len(data))
    for shift, key, name, colour in ((-0.2, "before", "first stage", QUIET), (0.2, "after", "re-ranked", SERIES[0])):
        axes.bar(positions + shift, [100 * getattr(length, key) for length in data], 0.38, color=colour, label=name)
    axes.set_xticks(positions, [f"{length_label(length)}\nn = {length.relevant}" for length in data])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("tokens of the document")
    axes.set_ylabel(f"% of relevant in the top {TOP}")
    legend_above(axes)
