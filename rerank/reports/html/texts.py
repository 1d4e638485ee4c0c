"""The texts of queries and documents, if the collection can be opened, and the passage that scored highest."""

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rerank.data.collections import Collection, open_collection
from rerank.data.passage_texts import OffsetTokenizer, open_offset_tokenizer, passage_span
from rerank.data.splitting import NOTHING_SHARED, Splitting
from rerank.data.types import Marked
from rerank.retrieval.indexed_texts import with_indexed_texts
from rerank.retrieval.lucene_index import choose_index
from rerank.retrieval.snippets import LENGTH, best_part
from rerank.retrieval.words import Word
from rerank.runs.results import CollectionResults
from rerank.utils.errors import UserError

# Lucene's English stop words: BM25 does not see them either.
STOP_WORDS = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not",
    "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will",
    "with",
})  # fmt: skip


class Texts(NamedTuple):
    """Queries and documents by id; `reason` says why there are none, or is ""."""

    queries: dict[str, str]
    documents: dict[str, str]
    reason: str


def open_queries(results: CollectionResults) -> tuple[dict[str, str], Collection | None, str]:
    """The queries' texts and the collection that the experiments' settings name, or why it cannot be opened."""
    if results.experiments[0].has_features:
        return {}, None, "feature vectors have none"
    table = results.experiments[0].settings.get("collection", {})
    try:
        collection = open_collection(table.get("source", ""), table.get("queries", ""), table.get("query_field", ""))
        return collection.queries, collection, ""
    except UserError as error:
        return {}, None, f"{error}"


def read_documents(collection: Collection, doc_ids: Iterable[str], results: CollectionResults | None = None) -> Texts:
    """The texts of these documents, from the collection or else from the index that was searched for the results."""
    wanted = sorted(set(doc_ids))
    try:
        if results and not collection.has_documents:
            table = results.experiments[0].settings["first_stage"]
            index = choose_index(table["index"], collection, results.folder.index)
            collection = with_indexed_texts(collection, index)
        return Texts(collection.queries, {document.doc_id: document.text for document in collection.get(wanted)}, "")
    except UserError as error:
        return Texts(collection.queries, {}, f"{error}")


def passage(
    text: str, number: int, of: int, checkpoint: Path, max_doc_tokens: int, splitting: Splitting = NOTHING_SHARED
) -> str:
    """Passage `number` (from 0) of the `of` into which the model of a checkpoint read the text.

    Split as in training, after truncation; without a repeated title. The whole text if the checkpoint's tokenizer was
    removed.
    """
    tokenizer = _tokenizer(checkpoint / "tokenizer.json")
    if tokenizer is None or of < 2:
        return text
    begin, end = passage_span(text, number, of, tokenizer, max_doc_tokens, splitting)
    return text[begin:end]


def excerpt(text: str, query: str, length: int = LENGTH) -> Marked:
    """The part of a text with the most words of the query, which are marked, as in the snippets of a search.

    Words are told apart without Java, which a report does not need.

    >>> excerpt("The cat and the dog sleep. A bird sings.", "birds", length=20).parts()
    [('… sleep. A ', False), ('bird', True), (' sings.', False)]
    """
    text = " ".join(text.split())
    words = [Word(_stem(word[0]), *word.span()) for word in re.finditer(r"\w+", text)]
    return best_part(text, words, _terms(query), length)


def _terms(query: str) -> set[str]:
    return {_stem(word) for word in re.findall(r"\w+", query) if word.lower() not in STOP_WORDS}


def _stem(word: str) -> str:
    """Roughly: without the endings of a plural and of a verb."""
    return re.sub(r"(?<=\w{3})(?:ies|es|s|ed|ing|y|e)$", "", word.lower())


@functools.cache
def _tokenizer(file: Path) -> OffsetTokenizer | None:
    if not file.is_file():
        return None
    return open_offset_tokenizer(file.read_text(encoding="utf-8"))
