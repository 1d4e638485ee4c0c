"""The most helped and most hurt queries, with their documents before and after."""

from typing import NamedTuple

from rerank.data.splitting import Splitting
from rerank.data.trec import ranked
from rerank.reports.charts.gain import Gain, Gains
from rerank.reports.html.texts import Texts, excerpt, passage
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.run_file_results import Compared, Results

QUERIES = 10
DOCUMENTS = 10
BEGINNING = 10  # words that identify the document for a reader


class ShownDocument(NamedTuple):
    """A document of a query: its ranks before and after (None: not ranked), its judgment (None: not judged)."""

    doc_id: str
    before: int | None
    after: int | None
    grade: int | None

    @property
    def up(self) -> int:
        """The ranks that it moved up; negative if it moved down, 0 if it is not in both rankings."""
        return 0 if self.before is None or self.after is None else self.before - self.after


class DocumentRow(NamedTuple):
    """A document with its first words, where its excerpt is from, and the excerpt in parts; True marks query words."""

    document: ShownDocument
    beginning: str
    source: str
    excerpt: list[tuple[str, bool]]


class QueryDetails(NamedTuple):
    """A query, how it changed, and its documents."""

    gain: Gain
    rows: list[DocumentRow]


def most_changed(gains: Gains) -> tuple[list[Gain], list[Gain]]:
    """The queries with the largest gains, and those with the largest losses, at most QUERIES of each."""
    helped = [query for query in gains.queries if query.gain > 0]
    hurt = [query for query in reversed(gains.queries) if query.gain < 0]
    return helped[:QUERIES], hurt[:QUERIES]


def shown_documents(results: Results, experiment: Compared, query_id: str) -> list[ShownDocument]:
    """The first DOCUMENTS after re-ranking, then those that were among the first only before."""
    orders = [ranked(run.get(query_id, {})) for run in (experiment.candidates(), experiment.run)]
    before, after = ({doc_id: rank for rank, doc_id in enumerate(order, 1)} for order in orders)
    chosen = dict.fromkeys(orders[1][:DOCUMENTS] + orders[0][:DOCUMENTS])
    grades = results.qrels[query_id]
    return [ShownDocument(doc_id, before.get(doc_id), after.get(doc_id), grades.get(doc_id)) for doc_id in chosen]


def query_details(results: Results, experiment: Compared, gain: Gain, texts: Texts) -> QueryDetails:
    """A query and its documents."""
    documents = shown_documents(results, experiment, gain.query_id)
    return QueryDetails(gain, [_row(experiment, gain, document, texts) for document in documents])


def _row(experiment: Compared, gain: Gain, document: ShownDocument, texts: Texts) -> DocumentRow:
    """The document's first words, and the excerpt that matches the query best in the passage that scored highest."""
    text = texts.documents.get(document.doc_id)
    if text is None:
        return DocumentRow(document, "", "", [])
    source, read = "", text
    if isinstance(experiment, ExperimentResults):
        fold = next(fold for fold in experiment.folds if gain.query_id in fold.run)
        if best := fold.passages.get(gain.query_id, {}).get(document.doc_id):
            number, count = best
            source = f"passage {number + 1} of {count} scored highest: "
            encoder = experiment.settings["encoder"]
            limit, splitting = encoder["max_doc_tokens"], Splitting.of(encoder)
            read = passage(text, number, count, fold.folder.checkpoint, limit, splitting)
    part = excerpt(read, gain.text)
    words = text.split(maxsplit=BEGINNING)[:BEGINNING]
    beginning = "" if part.text.split()[:BEGINNING] == words else " ".join(words)
    if beginning and (source or not part.text.startswith("…")):
        beginning += " …"
    return DocumentRow(document, beginning, source, part.parts())
