"""Gain by length: where re-ranking puts relevant documents that fit one passage, and those that do not."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rerank.data.tokens import TokenStore
from rerank.data.trec import ranked
from rerank.errors import UserError
from rerank.reports.charts.drawing import QUIET, SERIES, legend_above
from rerank.runs.results import Experiment, Results

TOP = 20
BOUNDS = (0, 128, 256, 512, 800)  # the encoders' usual limit, and the paper's cut


class Length(NamedTuple):
    """The relevant candidates of more than `over` tokens, and at most `to` (None: any).

    `before` and `after` are the shares of them among the first TOP, `up` is how many places they moved up, and
    `others_up` how many the other candidates of this length did; means over documents, NaN where there are none.
    """

    over: int
    to: int | None
    relevant: int
    before: float
    after: float
    up: float
    others_up: float


def token_lengths(results: Results, experiment: Experiment) -> dict[str, int]:
    """doc_id -> tokens before the cut, from the cache of tokenised documents that the experiment made.

    Raises UserError where the cache is gone, or no manifest says what was in it.
    """
    told = next((fold.facts["texts"] for fold in experiment.folds if "texts" in fold.facts), None)
    if told is None:
        raise UserError(f"{experiment.name}: no manifest tells of texts, so the documents' lengths are not known")
    for folder in sorted((results.folder / "tokens").glob("*/lengths.npy")):
        store = _without_tokens(folder.parent)
        if store.statistics().items() <= told.items():
            return dict(zip(store.rows, store.lengths.tolist(), strict=True))
    raise UserError(f"{results.folder / 'tokens'}: the tokenised documents of {experiment.name} are gone: no lengths")


def by_length(results: Results, experiment: Experiment, bounds: tuple[int, ...] = BOUNDS) -> list[Length]:
    """The candidates in bins that begin above each of `bounds`; a bin without relevant documents is left out.

    Raises UserError where the lengths or the first stage are not known.
    """
    lengths, candidates = token_lengths(results, experiment), experiment.candidates()
    rows = []
    for query_id, judged in results.judged(experiment.run).items():
        before, after = (_ranks(run.get(query_id, {})) for run in (candidates, experiment.run))
        known = [doc_id for doc_id in after if doc_id in before and doc_id in lengths]
        rows += [(lengths[d], judged.get(d, 0) > 0, before[d], after[d]) for d in known]
    tokens, relevant, old, new = np.array(rows).reshape(-1, 4).T
    found = []
    for over, to in zip(bounds, [*bounds[1:], None], strict=True):
        inside = (tokens > over if over else tokens >= 0) & (tokens <= to if to else True)
        ours, others = inside & (relevant == 1), inside & (relevant == 0)
        if ours.any():
            top_before, top_after, up = (float(x[ours].mean()) for x in (old <= TOP, new <= TOP, old - new))
            others_up = float((old - new)[others].mean()) if others.any() else np.nan
            found.append(Length(over, to, int(ours.sum()), top_before, top_after, up, others_up))
    if not found:
        raise UserError(f"{experiment.name}: no candidate of a tested topic is relevant: no chart of lengths")
    return found


def length_label(length: Length) -> str:
    """Such as 129-256, or over 800."""
    return f"{length.over + 1 if length.over else 0}–{length.to}" if length.to else f"over {length.over}"


def draw_lengths(figure: Any, data: list[Length]) -> None:
    """Two bars a bin: the share of its relevant documents in the first TOP, before and after."""
    axes = figure.subplots()
    places = np.arange(len(data))
    for shift, key, name, colour in ((-0.2, "before", "first stage", QUIET), (0.2, "after", "re-ranked", SERIES[0])):
        axes.bar(places + shift, [100 * getattr(length, key) for length in data], 0.38, color=colour, label=name)
    axes.set_xticks(places, [f"{length_label(length)}\nn = {length.relevant}" for length in data])
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("tokens of the document")
    axes.set_ylabel(f"% of relevant in the top {TOP}")
    legend_above(axes)


def _ranks(scores: dict[str, float]) -> dict[str, int]:
    return {doc_id: rank for rank, doc_id in enumerate(ranked(scores), 1)}


def _without_tokens(folder: Path) -> TokenStore:
    try:
        doc_ids = json.loads((folder / "doc_ids.json").read_text(encoding="utf-8"))
        offsets, lengths = np.load(folder / "offsets.npy"), np.load(folder / "lengths.npy")
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: the tokenised documents cannot be read ({error}); remove the folder") from error
    return TokenStore(np.zeros(0, np.int32), offsets, lengths, {doc_id: row for row, doc_id in enumerate(doc_ids)})
