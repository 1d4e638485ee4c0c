"""The most helped and most hurt queries, with their documents before and after, and the texts of these."""

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rerank.data.collections import Collection, open_collection
from rerank.data.passage_texts import OffsetTokenizer, open_offset_tokenizer, passage_span
from rerank.data.splitting import Splitting
from rerank.data.trec import ranked
from rerank.reports.charts.gain import Gain, Gains
from rerank.retrieval.indexed_texts import with_indexed_texts
from rerank.retrieval.lucene_index import choose_index
from rerank.retrieval.snippets import snippet
from rerank.retrieval.words import find_words
from rerank.runs.experiment_results import ExperimentResults
from rerank.runs.results import Compared, Results
from rerank.utils.errors import UserError

QUERIES = 10
DOCUMENTS = 10
BEGINNING = 10  # words that identify the document for a reader


class Texts(NamedTuple):
    """Documents' texts by id, and the language of words; `reason` says why there are no texts, or is ""."""

    documents: dict[str, str]
    language: str
    reason: str = ""


def open_texts(experiment: ExperimentResults) -> Collection:
    """The collection that the settings of an experiment name; raises UserError if it cannot be opened."""
    if experiment.has_features:
        raise UserError("feature vectors have none")
    table = experiment.settings.get("collection", {})
    return open_collection(table.get("source", ""), table.get("queries", ""), table.get("query_field", ""))


def read_documents(
    collection: Collection, doc_ids: Iterable[str], language: str, experiment: ExperimentResults | None = None
) -> Texts:
    """The texts of these documents, from the collection or else from the index that was searched for the experiment."""
    wanted = sorted(set(doc_ids))
    try:
        if experiment and not collection.has_documents:
            index = experiment.settings["first_stage"]["index"]
            folder = experiment.folder.collection.index
            collection = with_indexed_texts(collection, choose_index(index, collection, folder))
        return Texts({document.doc_id: document.text for document in collection.get(wanted)}, language)
    except UserError as error:
        return Texts({}, language, f"{error}")


class Excerpt(NamedTuple):
    """A document's first words, where its excerpt is from, and the excerpt in parts; True marks query words."""

    beginning: str
    source: str
    parts: list[tuple[str, bool]]


class ShownDocument(NamedTuple):
    """A document of a query: its ranks before and after (None: not ranked), its judgment (None: not judged)."""

    doc_id: str
    before: int | None
    after: int | None
    grade: int | None
    excerpt: Excerpt

    @property
    def up(self) -> int:
        """The ranks that it moved up; negative if it moved down, 0 if it is not in both rankings."""
        return 0 if self.before is None or self.after is None else self.before - self.after


class QueryDetails(NamedTuple):
    """A query, how it changed, and its documents."""

    gain: Gain
    documents: list[ShownDocument]


def most_changed(gains: Gains) -> tuple[list[Gain], list[Gain]]:
    """The queries with the largest gains, and those with the largest losses, at most QUERIES of each."""
    helped = [query for query in gains.queries if query.gain > 0]
    hurt = [query for query in reversed(gains.queries) if query.gain < 0]
    return helped[:QUERIES], hurt[:QUERIES]


def shown_documents(experiment: Compared, gains: Gains) -> Iterator[str]:
    """The documents of the queries that changed most."""
    for side in most_changed(gains):
        for gain in side:
            yield from _first_of(experiment, gain.query_id)


def _first_of(experiment: Compared, query_id: str) -> list[str]:
    """The first DOCUMENTS of a query after re-ranking, then those that were among the first only before."""
    after, before = (ranked(run.get(query_id, {})) for run in (experiment.run, experiment.candidates()))
    return list(dict.fromkeys(after[:DOCUMENTS] + before[:DOCUMENTS]))


def query_details(results: Results, experiment: Compared, gain: Gain, texts: Texts) -> QueryDetails:
    """A query and its documents."""
    query_id, grades = gain.query_id, results.qrels[gain.query_id]
    runs = experiment.candidates(), experiment.run
    before, after = ({d: rank for rank, d in enumerate(ranked(run.get(query_id, {})), 1)} for run in runs)
    documents = [
        ShownDocument(d, before.get(d), after.get(d), grades.get(d), _excerpt(experiment, gain, d, texts))
        for d in _first_of(experiment, query_id)
    ]
    return QueryDetails(gain, documents)


def _excerpt(experiment: Compared, gain: Gain, doc_id: str, texts: Texts) -> Excerpt:
    """The part that matches the query best in the passage of a document that scored highest, as a search shows it."""
    text = texts.documents.get(doc_id)
    if text is None:
        return Excerpt("", "", [])
    source, read = "", text
    if isinstance(experiment, ExperimentResults):
        fold = next(fold for fold in experiment.folds if gain.query_id in fold.run)
        if best := fold.passages.get(gain.query_id, {}).get(doc_id):
            number, count = best
            source = f"passage {number + 1} of {count} scored highest: "
            read = passage(text, number, count, fold.folder.checkpoint, experiment.settings["encoder"])
    part = snippet(read, {word.term for word in find_words(gain.text, texts.language)}, texts.language)
    words = text.split(maxsplit=BEGINNING)[:BEGINNING]
    beginning = "" if part.text.split()[:BEGINNING] == words else " ".join(words)
    if beginning and (source or not part.text.startswith("…")):
        beginning += " …"
    return Excerpt(beginning, source, part.parts())


def passage(text: str, number: int, of: int, checkpoint: Path, encoder: dict[str, Any]) -> str:
    """Passage `number` (from 0) of the `of` into which the model of a checkpoint, with these settings, read the text.

    Split as in training, after truncation; without a repeated title. The whole text if the checkpoint's tokenizer was
    removed.
    """
    tokenizer = _tokenizer(checkpoint / "tokenizer.json")
    if tokenizer is None or of < 2:
        return text
    begin, end = passage_span(text, number, of, tokenizer, encoder["max_doc_tokens"], Splitting.of(encoder))
    return text[begin:end]


@functools.cache
def _tokenizer(file: Path) -> OffsetTokenizer | None:
    return open_offset_tokenizer(file.read_text(encoding="utf-8")) if file.is_file() else None
