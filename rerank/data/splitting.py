"""How a document is split into passages: as few as fit, of equal length to within one token."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class Splitting(NamedTuple):
    """What the passages of a document share: tokens with the passage before, and the document's first tokens.

    overlap: the tokens that a passage shares with the one before it. title: the number of the document's first tokens,
    its title as a rule, that are put in front of every passage after the first. Numbers below may be arrays.
    """

    overlap: int = 0
    title: int = 0

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Splitting":
        """That of an encoder's settings, or of those that a checkpoint records; a missing one is 0."""
        return cls(settings.get("passage_overlap", 0), settings.get("title_tokens", 0))

    def settings(self) -> dict[str, int]:
        """The settings that are not 0, as a checkpoint records them."""
        both = {"passage_overlap": self.overlap, "title_tokens": self.title}
        return {name: value for name, value in both.items() if value}

    @property
    def repeated(self) -> int:
        """The tokens of a passage after the first that an earlier one has too."""
        return self.overlap + self.title

    def passages(self, length: Any, limit: Any) -> Any:
        """The fewest passages of at most `limit` > `repeated` tokens that a document of `length` tokens fits into."""
        return np.maximum(1, -(-(length - self.repeated) // (limit - self.repeated)))

    def total(self, length: Any, passages: Any) -> Any:
        """The tokens of all passages of a document, with those that are repeated."""
        return length + (passages - 1) * self.repeated

    def span(self, length: Any, passages: Any, number: Any) -> tuple[Any, Any]:
        """Where passage `number` (from 0) begins, after the repeated title, and ends, in tokens of the document."""
        total = self.total(length, passages)
        begins = number * total // passages - (number - 1) * self.repeated - self.overlap
        return np.where(number, begins, 0), (number + 1) * total // passages - number * self.repeated


NOTHING_SHARED = Splitting()
"""The splitting of the paper: every token is in one passage."""
