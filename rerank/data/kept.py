"""A collection whose documents were copied elsewhere: it keeps its name and its fingerprint."""

from dataclasses import dataclass
from typing import Any

from rerank.data.sources import Source


@dataclass(frozen=True)
class KeptSource:
    """A source of copied documents, queries and judgments, under the name and the fingerprint of the original.

    What was made of the original documents, which its fingerprint names, so serves the copy. See `Source` for the other
    attributes.
    """

    copy: Source
    name: str
    fingerprint: str

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self.copy, attribute)
