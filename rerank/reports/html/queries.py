"""The most helped and most hurt queries, with their documents before and after."""

from typing import NamedTuple

from rerank.data.trec import ranked
from rerank.reports.charts.gain import Gain, Gains
from rerank.reports.html.elements import Html, details, escaped, join, table, tag
from rerank.reports.html.texts import Texts, excerpt, marked, passage
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import CollectionResults

QUERIES = 10
DOCUMENTS = 10
BEGINNING = 10  # words by which a reader knows the document again


class Shown(NamedTuple):
    """A document of a query: its ranks before and after (None: not ranked), its judgment (None: none)."""

    doc_id: str
    before: int | None
    after: int | None
    grade: int | None


def most_changed(gains: Gains) -> tuple[list[Gain], list[Gain]]:
    """The queries that were helped most, and those that were hurt most, at most QUERIES of each."""
    helped = [query for query in gains.queries if query.gain > 0]
    hurt = [query for query in reversed(gains.queries) if query.gain < 0]
    return helped[:QUERIES], hurt[:QUERIES]


def shown_documents(results: CollectionResults, experiment: ExperimentResults, query_id: str) -> list[Shown]:
    """The first DOCUMENTS after re-ranking, then those that stood among the first before and no longer do."""
    orders = [ranked(run.get(query_id, {})) for run in (experiment.candidates(), experiment.run)]
    before, after = ({doc_id: rank for rank, doc_id in enumerate(order, 1)} for order in orders)
    chosen = dict.fromkeys(orders[1][:DOCUMENTS] + orders[0][:DOCUMENTS])
    grades = results.qrels[query_id]
    return [Shown(doc_id, before.get(doc_id), after.get(doc_id), grades.get(doc_id)) for doc_id in chosen]


def query_details(results: CollectionResults, experiment: ExperimentResults, gain: Gain, texts: Texts) -> Html:
    """One query: what it asks, what changed, and its documents."""
    way = "up" if gain.gain > 0 else "down"
    change = tag("span", f"{gain.gain:+.3f}", class_=way)
    summary = join([change, f" {gain.query_id}", f": {gain.text}" if gain.text else ""])
    rows = [_row(experiment, gain, shown, texts) for shown in shown_documents(results, experiment, gain.query_id)]
    return details(
        summary,
        tag("p", f"{gain.before:.3f} before, {gain.after:.3f} after", class_="quiet"),
        table(["now", "before", "judged", tag("div", "document", class_="text")], rows),
    )


def _row(experiment: ExperimentResults, gain: Gain, shown: Shown, texts: Texts) -> list[object]:
    judged: object = "–" if shown.grade is None else shown.grade
    if shown.grade is not None and shown.grade > 0:
        judged = tag("span", f"{shown.grade} relevant", class_="relevant")
    text = tag("div", _text(experiment, gain, shown.doc_id, texts), class_="text")
    return [_rank(shown.after), join([_rank(shown.before), " ", _moved(shown)]), judged, text]


def _text(experiment: ExperimentResults, gain: Gain, doc_id: str, texts: Texts) -> Html:
    """The document's id, its first words, and what answers the query best in the passage that scored highest."""
    whole = texts.documents.get(doc_id)
    if whole is None:
        return escaped(doc_id)
    where, read = "", whole
    fold = next(fold for fold in experiment.folds if gain.query_id in fold.run)
    if best := fold.passages.get(gain.query_id, {}).get(doc_id):
        number, of = best
        where = f"passage {number + 1} of {of} scored highest: "
        limit = experiment.settings["encoder"]["max_doc_tokens"]
        read = passage(whole, number, of, fold.folder.checkpoint, limit)
    part = excerpt(read, gain.text)
    words = whole.split()
    beginning = "" if part.split()[:BEGINNING] == words[:BEGINNING] else " ".join(words[:BEGINNING])
    between = " … " if beginning and (where or not part.startswith("…")) else " "
    return join([tag("b", doc_id), " ", beginning, between, tag("small", where), marked(part, gain.text)])


def _rank(rank: int | None) -> str:
    return "–" if rank is None else str(rank)


def _moved(shown: Shown) -> Html:
    if shown.before is None or shown.after is None or shown.before == shown.after:
        return Html("")
    up = shown.before - shown.after
    return tag("span", f"{'▲' if up > 0 else '▼'}{abs(up)}", class_="up" if up > 0 else "down")
