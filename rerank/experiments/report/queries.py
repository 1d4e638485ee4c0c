"""The most helped and most hurt queries, with their documents before and after re-ranking."""

from collections.abc import Sequence
from typing import NamedTuple

from rerank.config import FirstStageSettings
from rerank.data.collections import Collection
from rerank.data.trec import ranked
from rerank.experiments.report.plot import Gain
from rerank.experiments.runs.experiment_results import ExperimentResults
from rerank.experiments.runs.results import Compared, Results
from rerank.retrieval.lucene_index import choose_index, with_indexed_texts
from rerank.retrieval.words import find_words, snippet
from rerank.utils.errors import UserError

QUERIES = 10
"""Most queries that are shown as helped, and as hurt."""

DOCUMENTS = 10
"""First documents of a query that are shown, of the ranking after and of that before."""


class Texts(NamedTuple):
    """The texts of documents by id, and their language; `reason` says why there are no texts, or is ""."""

    documents: dict[str, str]
    language: str
    reason: str = ""


def read_documents(collection: Collection, doc_ids: Sequence[str], language: str, experiment: Compared) -> Texts:
    """The texts of these documents, from the collection, or else from the index that the experiment searched."""
    try:
        if isinstance(experiment, ExperimentResults) and not collection.has_documents:
            index = str(experiment.setting("first_stage.index") or FirstStageSettings().index)
            folder = experiment.folder.collection.index
            collection = with_indexed_texts(collection, choose_index(index, collection, folder, language=language))
        return Texts({document.doc_id: document.text for document in collection.get(doc_ids)}, language)
    except UserError as error:
        return Texts({}, language, str(error))


class ShownDocument(NamedTuple):
    """A document of a query: its ranks before and after (None: not ranked), its judgment (None: not judged).

    `excerpt` is the snippet of its text that matches the query best, in pieces; True marks query words.
    """

    doc_id: str
    before: int | None
    after: int | None
    grade: int | None
    excerpt: list[tuple[str, bool]]

    @property
    def up(self) -> int:
        """How many ranks it moved up; negative if it moved down, 0 if it is not in both rankings."""
        return 0 if self.before is None or self.after is None else self.before - self.after


def most_changed(gains: Sequence[Gain]) -> dict[str, list[Gain]]:
    """The queries with the largest gains and the largest losses, at most QUERIES of each, by title."""
    helped = [query for query in gains if query.gain > 0]
    hurt = [query for query in reversed(gains) if query.gain < 0]
    return {"Most helped": helped[:QUERIES], "Most hurt": hurt[:QUERIES]}


def shown_documents(experiment: Compared, query_id: str) -> list[str]:
    """The first DOCUMENTS of a query after re-ranking, then the first DOCUMENTS before it, without repetition."""
    after, before = (ranked(run.get(query_id, {})) for run in (experiment.run, experiment.candidates()))
    return list(dict.fromkeys(after[:DOCUMENTS] + before[:DOCUMENTS]))


def documents_of(results: Results, experiment: Compared, gain: Gain, texts: Texts) -> list[ShownDocument]:
    """The documents to show for a query (see `shown_documents`)."""
    query_id, grades = gain.query_id, results.qrels[gain.query_id]
    runs = experiment.candidates(), experiment.run
    before, after = ({d: rank for rank, d in enumerate(ranked(run.get(query_id, {})), 1)} for run in runs)
    terms = {word.term for word in find_words(gain.text, texts.language)}
    documents = []
    for d in shown_documents(experiment, query_id):
        excerpt = snippet(texts.documents[d], terms, texts.language).parts() if d in texts.documents else []
        documents.append(ShownDocument(d, before.get(d), after.get(d), grades.get(d), excerpt))
    return documents
