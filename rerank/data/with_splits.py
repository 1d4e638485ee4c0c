"""A collection whose training and validation queries are those of other collections of the same documents."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rerank.data.sources import Source
from rerank.data.splits import Judged, merge_splits
from rerank.data.types import Fold, Judgments
from rerank.utils.errors import UserError


@dataclass(frozen=True)
class WithSplits:
    """The queries of `tested` test, those of `train` train and those of `valid`, if any, validate; see `Source`.

    `given` is what the user wrote, if it is not the source of `tested`, and `note` a line about what is not used. The
    documents are those of `tested`. Opening raises UserError for other documents, for a collection without judgments,
    and for one with a split or folds of its own.
    """

    tested: Source
    train: Source
    valid: Source | None = None
    given: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for part, source in self._parts.items():
            source.expect_judgments()
            if source.folds:
                raise UserError(
                    f"{source.source}: has training and test queries of its own; expected the id or folder of its "
                    f"{part} queries alone"
                )
            if source.fingerprint != self.fingerprint:
                raise UserError(
                    f"{source.source}: has other documents ({source.fingerprint}) than {self.tested.source} "
                    f"({self.fingerprint}); training, validation and test queries must be of the same documents"
                )

    @property
    def _parts(self) -> dict[str, Source]:
        parts = {"train": self.train, "valid": self.valid, "test": self.tested}
        return {part: source for part, source in parts.items() if source is not None}

    @property
    def source(self) -> str:
        return self.given or self.tested.source

    @property
    def name(self) -> str:
        return self.given.replace("/", "-") or self.tested.name

    @functools.cached_property
    def queries(self) -> dict[str, str]:
        return self._merge({part: source.queries for part, source in self._parts.items()})

    def query_texts(self, field: str) -> dict[str, str]:
        return self._merge({part: source.query_texts(field) for part, source in self._parts.items()})

    def _merge(self, parts: Mapping[str, dict[str, str]]) -> dict[str, str]:
        """The queries of all parts; raises UserError for an id that is not the same query in all of them."""
        queries: dict[str, str] = {}
        for part, texts in parts.items():
            for query_id, text in texts.items():
                if queries.setdefault(query_id, text) != text:
                    raise UserError(
                        f"{self._parts[part].source}: query {query_id} is {text[:60]!r}, in another part of the split "
                        f"{queries[query_id][:60]!r}; expected one text for each id"
                    )
        return queries

    @functools.cached_property
    def _judged(self) -> Judged:
        return merge_splits({part: source.qrels for part, source in self._parts.items()}, self.source, self.note)

    @property
    def qrels(self) -> Judgments:
        return self._judged.qrels

    @property
    def folds(self) -> tuple[Fold, ...]:
        return self._judged.folds

    @property
    def notes(self) -> tuple[str, ...]:
        return self._judged.notes

    def expect_judgments(self) -> None:
        """Does nothing: opening has checked that all parts have judgments."""

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.tested, attribute)
