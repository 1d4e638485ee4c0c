"""The texts of documents, if the collection can be opened, and the passage that scored highest."""

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rerank.data.collections import Collection, open_collection
from rerank.data.passage_texts import OffsetTokenizer, open_offset_tokenizer, passage_span
from rerank.data.splitting import NOTHING_SHARED, Splitting
from rerank.retrieval.indexed_texts import with_indexed_texts
from rerank.retrieval.lucene_index import choose_index
from rerank.runs.experiment_results import ExperimentResults
from rerank.utils.errors import UserError


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


@functools.cache
def _tokenizer(file: Path) -> OffsetTokenizer | None:
    return open_offset_tokenizer(file.read_text(encoding="utf-8")) if file.is_file() else None
