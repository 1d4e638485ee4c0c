"""How far re-ranking moved documents, how many of them are judged, what was cut, and what length has to do with it."""

from typing import NamedTuple

from rerank.data.trec import ranked
from rerank.errors import UserError
from rerank.reports.charts.judged import judged
from rerank.reports.charts.lengths import TOP, Length, by_length
from rerank.reports.html.elements import Html, join, missing, percent, table, tag
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import CollectionResults

LIMIT = 512  # tokens that the usual encoder takes at a time
JUDGED_AT = (1, 5, 10, 20, 50, 100, 150)


class Movement(NamedTuple):
    """Means over queries: Kendall's tau, the shares of the first 10 and 20 that stayed there, places moved."""

    tau: float
    overlap_10: float
    overlap_20: float
    places: float


def movement(experiment: ExperimentResults) -> Movement:
    """How the test rankings differ from the first stage's, over the queries with several candidates."""
    import numpy as np
    from scipy.stats import kendalltau  # only here: it takes a second to import

    rows = []
    for query_id, scores in experiment.candidates().items():
        before = ranked(scores)
        place = {doc_id: rank for rank, doc_id in enumerate(ranked(experiment.run[query_id]))}
        after = [place[doc_id] for doc_id in before if doc_id in place]
        if len(after) > 1:
            stayed = [sum(rank < k for rank in after[:k]) / min(k, len(after)) for k in (10, 20)]
            moved = np.abs(np.subtract(after, range(len(after)))).mean()
            rows.append([kendalltau(range(len(after)), after).statistic, *stayed, moved])
    return Movement(*np.mean(rows, axis=0).tolist()) if rows else Movement(*[float("nan")] * 4)


def movement_table(experiments: list[ExperimentResults]) -> Html:
    """A row an experiment, over all queries that it tested."""
    rows = []
    for experiment in experiments:
        of = movement(experiment)
        rows.append(
            [
                experiment.name,
                len(experiment.run),
                f"{of.tau:.3f}",
                percent(of.overlap_10),
                percent(of.overlap_20),
                f"{of.places:.1f}",
            ]
        )
    return table(["run", "queries", "Kendall's τ", "top 10 that stayed", "top 20 that stayed", "places moved"], rows)


def judged_table(results: CollectionResults) -> Html:
    """The share of judged documents at several depths, a row a run, over the queries that all experiments tested."""
    shown = judged(results)
    runs = shown.first_stages | shown.experiments
    depths = [depth for depth in JUDGED_AT if all(depth <= len(shares) for shares in runs.values())]
    rows = [[name, *(percent(shares[depth - 1]) for depth in depths)] for name, shares in runs.items()]
    note = f"Over the {shown.queries} queries that all experiments tested."
    return join([tag("p", note, class_="quiet"), table(["judged among the first", *depths], rows)])


def cut_table(experiments: list[ExperimentResults]) -> Html:
    """What the models did not see: a row an experiment, from its first fold's manifest."""
    rows = []
    for experiment in experiments:
        told = next((fold.facts["texts"] for fold in experiment.folds if "texts" in fold.facts), None)
        if told:
            limit = experiment.settings["encoder"]["max_doc_tokens"]
            documents = f"{told['documents_cut']:,} of {told['documents']:,} at {limit}"
            shares = (
                percent(told["documents_cut"] / max(1, told["documents"])),
                percent(told["tokens_cut"] / max(1, told["tokens"])),
            )
            rows.append([experiment.name, documents, *shares, told["queries_cut"]])
    if not rows:
        return missing("no manifest tells of texts that were cut")
    return table(["run", "documents cut", "of documents", "of all tokens", "queries cut"], rows)


def length_table(results: CollectionResults, experiments: list[ExperimentResults]) -> Html:
    """How relevant documents moved, up to LIMIT tokens and over; two rows an experiment."""
    rows, reasons = [], []
    for experiment in experiments:
        try:
            bins = by_length(results, experiment, (0, LIMIT))
        except UserError as error:
            reasons.append(missing(error))
            continue
        rows += [_length_row(experiment.name, length) for length in bins]
    head = ["run, tokens", "relevant", f"in the top {TOP} before", "after", "places up", "places up of others"]
    note = "Means over the relevant candidates of the tested queries; a relevant document should move up, others down."
    shown = [tag("p", note, class_="quiet"), table(head, rows)] if rows else []
    return join([*shown, *reasons])


def _length_row(name: str, length: Length) -> list[object]:
    label = f"{name}, over {LIMIT}" if length.over else f"{name}, up to {LIMIT}"
    moved = [f"{length.up:+.1f}", f"{length.others_up:+.1f}"]
    return [label, length.relevant, percent(length.before), percent(length.after), *moved]
