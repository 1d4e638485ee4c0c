"""The most helped and most hurt queries, with their documents before and after, and the texts of these."""

from collections.abc import Sequence
from typing import NamedTuple

from rerank.data.collections import Collection
from rerank.data.trec import ranked
from rerank.experiments.report.plot import Gain
from rerank.experiments.runs.experiment_results import ExperimentResults
from rerank.experiments.runs.results import Compared, Results
from rerank.retrieval.lucene_index import choose_index, with_indexed_texts
from rerank.retrieval.words import find_words, snippet
from rerank.utils.errors import UserError

QUERIES = 10
DOCUMENTS = 10


class Texts(NamedTuple):
    """Documents' texts by id, and the language of words; `reason` says why there are no texts, or is ""."""

    documents: dict[str, str]
    language: str
    reason: str = ""


def read_documents(collection: Collection, doc_ids: Sequence[str], language: str, experiment: Compared) -> Texts:
    """The texts of these documents, from the collection or else from the index that was searched for the experiment."""
    try:
        if isinstance(experiment, ExperimentResults) and not collection.has_documents:
            index = experiment.settings["first_stage"]["index"]
            folder = experiment.folder.collection.index
            collection = with_indexed_texts(collection, choose_index(index, collection, folder))
        return Texts({document.doc_id: document.text for document in collection.get(doc_ids)}, language)
    except UserError as error:
        return Texts({}, language, str(error))


class ShownDocument(NamedTuple):
    """A document of a query: its ranks before and after (None: not ranked), its judgment (None: not judged).

    `excerpt` is the part of its text that matches the query best, in parts; True marks query words.
    """

    doc_id: str
    before: int | None
    after: int | None
    grade: int | None
    excerpt: list[tuple[str, bool]]

    @property
    def up(self) -> int:
        """The ranks that it moved up; negative if it moved down, 0 if it is not in both rankings."""
        return 0 if self.before is None or self.after is None else self.before - self.after


def most_changed(gains: Sequence[Gain]) -> dict[str, list[Gain]]:
    """Those with the largest gains, and those with the largest losses, at most QUERIES of each; by title."""
    helped = [query for query in gains if query.gain > 0]
    hurt = [query for query in reversed(gains) if query.gain < 0]
    return {"Most helped": helped[:QUERIES], "Most hurt": hurt[:QUERIES]}


def shown_documents(experiment: Compared, query_id: str) -> list[str]:
    """The first DOCUMENTS of a query after re-ranking, then those that were among the first only before."""
    after, before = (ranked(run.get(query_id, {})) for run in (experiment.run, experiment.candidates()))
    return list(dict.fromkeys(after[:DOCUMENTS] + before[:DOCUMENTS]))


def documents_of(results: Results, experiment: Compared, gain: Gain, texts: Texts) -> list[ShownDocument]:
    """The documents of a query that changed."""
    query_id, grades = gain.query_id, results.qrels[gain.query_id]
    runs = experiment.candidates(), experiment.run
    before, after = ({d: rank for rank, d in enumerate(ranked(run.get(query_id, {})), 1)} for run in runs)
    terms = {word.term for word in find_words(gain.text, texts.language)}
    documents = []
    for d in shown_documents(experiment, query_id):
        excerpt = snippet(texts.documents[d], terms, texts.language).parts() if d in texts.documents else []
        documents.append(ShownDocument(d, before.get(d), after.get(d), grades.get(d), excerpt))
    return documents
