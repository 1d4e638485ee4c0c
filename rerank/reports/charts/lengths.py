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
BOUNDS = (0, 128, 256, 512, 800)  # 512 is the usual limit of encoders, 800 the cut of Thonet et al.


class Length(NamedTuple):
    """The relevant candidates of more than `over` tokens, and at most `to` (None: any).

    `before` and `after` are the shares of them among the first TOP, `up` the ranks that they moved up, and `others_up`
    the ranks that the other candidates of this length moved up; means over documents, NaN if there are none.
    """

    over: int
    to: int | None
    relevant: int
    before: float
    after: float
    up: float
    others_up: float


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


def by_length(results: Results, experiment: ExperimentResults, bounds: tuple[int, ...] = BOUNDS) -> list[Length]:
    """The candidates in bins that begin above each of `bounds`; a bin without relevant documents is left out.

    Raises UserError if the lengths or the first stage are unknown.
    """
    lengths, candidates = token_lengths(experiment), experiment.candidates()
    rows = []
    for query_id, judged in results.judged(experiment.run).items():
        before, after = (_ranks(run.get(query_id, {})) for run in (candidates, experiment.run))
        known = [doc_id for doc_id in after if doc_id in before and doc_id in lengths]
        rows += [(lengths[d], judged.get(d, 0) > 0, before[d], after[d]) for d in known]
    tokens, relevant, old, new = np.array(rows).reshape(-1, 4).T
    bins = []
    for over, to in zip(bounds, [*bounds[1:], None], strict=True):
        inside = (tokens > over if over else tokens >= 0) & (tokens <= to if to else True)
        ours, rest = inside & (relevant == 1), inside & (relevant == 0)
        if ours.any():
            top_before, top_after, up = (float(x[ours].mean()) for x in (old <= TOP, new <= TOP, old - new))
            others_up = float((old - new)[rest].mean()) if rest.any() else np.nan
            bins.append(Length(over, to, int(ours.sum()), top_before, top_after, up, others_up))
    if not bins:
        raise UserError(
            f"{experiment.name}: no candidate of a tested query is relevant, so there is no chart of lengths"
        )
    return bins


def length_label(length: Length) -> str:
    """Such as 129–256, or over 800."""
    return f"{length.over + 1 if length.over else 0}–{length.to}" if length.to else f"over {length.over}"


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


def _ranks(scores: dict[str, float]) -> dict[str, int]:
    return {doc_id: rank for rank, doc_id in enumerate(ranked(scores), 1)}
