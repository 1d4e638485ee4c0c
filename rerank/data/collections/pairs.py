"""Pairs and triples of texts as a collection: a JSONL file or a Hugging Face data set folder."""

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rerank.data.collections.beir import CORPUS
from rerank.data.folds import Judged, merge_splits
from rerank.data.records import PAIR_LINE, Pair, pair_of, read_records, source_hash, text_id
from rerank.data.types import Document, Qrels
from rerank.utils.errors import UserError

SPLITS = {"train": ("train",), "valid": ("validation", "dev"), "test": ("test",)}
"""Split -> the possible names of its folder in a data set with splits."""


@dataclass(frozen=True)
class Pairs:
    """A collection of the queries and texts of pairs; see `Source` for its attributes.

    Each distinct text is a document, and each distinct query a query; their ids are hashes of the texts. A positive
    text is judged 1 for its query and a negative one 0. A data set folder with `train` and `test` has these splits.
    """

    source: str
    has_documents = found_at_once = True

    @classmethod
    def matches(cls, source: str) -> bool:
        """Whether it is a .jsonl file but corpus.jsonl, or a folder without corpus.jsonl whose first record is a pair.

        A line of the file that is no pair is refused when it is read.
        """
        path = Path(source)
        if path.is_file() and path.suffix == ".jsonl":
            return path.name != CORPUS
        if not path.is_dir() or (path / CORPUS).exists():
            return False
        try:
            place, record = next(iter(read_records(source, PAIR_LINE)))
            return pair_of(record, place) is not None
        except (StopIteration, UserError):
            return False

    @property
    def name(self) -> str:
        return Path(self.source).resolve().name.removesuffix(".jsonl")

    @functools.cached_property
    def queries(self) -> dict[str, str]:
        return {text_id(pair.query): pair.query for pair in self._pairs(self.source)}

    @functools.cached_property
    def judged(self) -> Judged:
        """The positive texts with grade 1 and the negative ones with grade 0, and the splits of the folder, if any."""
        folders = {
            split: Path(self.source, name)
            for split, names in SPLITS.items()
            for name in names
            if Path(self.source, name).is_dir()
        }
        if {"train", "test"} <= folders.keys():
            return merge_splits({split: self._qrels(str(place)) for split, place in folders.items()}, self.source)
        return Judged(self._qrels(self.source))

    @functools.cached_property
    def fingerprint(self) -> str:
        return source_hash(Path(self.source))

    def place_of(self, query_id: str, doc_id: str) -> str:
        return f"{self.source}, query {query_id}, document {doc_id}"

    def expect_judgments(self) -> None:
        """Pairs are judgments."""

    def count(self) -> int:
        return len(self._texts)

    def documents(self) -> Iterator[Document]:
        return (Document(doc_id, "", text) for doc_id, text in self._texts.items())

    def get(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        for doc_id in doc_ids:
            if doc_id not in self._texts:
                raise UserError(f"{self.source}: has no document {doc_id}; the run or lists come from another source")
            yield Document(doc_id, "", self._texts[doc_id])

    def known(self, doc_ids: Iterable[str]) -> set[str]:
        return {doc_id for doc_id in doc_ids if doc_id in self._texts}

    @functools.cached_property
    def _texts(self) -> dict[str, str]:
        texts = itertools.chain.from_iterable((pair.positive, *pair.negatives) for pair in self._pairs(self.source))
        return {text_id(text): text for text in texts}

    def _qrels(self, source: str) -> Qrels:
        qrels: Qrels = {}
        for pair in self._pairs(source):
            judged = qrels.setdefault(text_id(pair.query), {})
            for text in pair.negatives:
                judged.setdefault(text_id(text), 0)
            judged[text_id(pair.positive)] = 1
        return qrels

    def _pairs(self, source: str) -> Iterator[Pair]:
        for place, record in read_records(source, PAIR_LINE):
            pair = pair_of(record, place)
            if pair is None:
                raise UserError(f"{place}: expected {PAIR_LINE}, got the keys {', '.join(record)}")
            yield pair
