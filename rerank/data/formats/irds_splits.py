"""Ids of ir_datasets with a published split below them: beir/fiqa is beir/fiqa/train, …/dev and …/test."""

from dataclasses import dataclass

from rerank.data.formats._ir_datasets import published_split
from rerank.data.formats.irds import IrDataset
from rerank.data.sources import register
from rerank.data.with_splits import WithSplits


@dataclass(frozen=True)
class _PublishedSplit:
    """The reader of these ids: without judged queries in /test, those of /dev test."""

    @classmethod
    def matches(cls, source: str) -> bool:
        return IrDataset.matches(source) and bool(published_split(source))

    def __call__(self, source: str) -> WithSplits:
        """Opens the parts; raises UserError if one cannot be opened."""
        ids = published_split(source)
        parts = {part: IrDataset(id_) for part, id_ in ids.items()}
        note = f"{source}: no judged queries in {source}/test, so those of {ids['test']} test"
        if ids["test"] == f"{source}/test":
            note = ""
        return WithSplits(parts["test"], parts["train"], parts.get("valid"), source, note)


register(_PublishedSplit(), fallback=True)
register(IrDataset, fallback=True)  # here, as it would open these ids too if it were asked first
