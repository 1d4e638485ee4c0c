"""The settings of what is ranked: the collection and the first stage. See `rerank.config.settings`."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from rerank.utils.parameters import Count, PathText, Whole, at_least, between


@dataclass(frozen=True)
class CollectionSettings:
    """The documents, queries and, to train and to evaluate, relevance judgments."""

    source: Annotated[PathText, Parameter(alias="--collection")] = "disks45/nocr/trec-robust-2004"
    """An ir_datasets id, a folder in BEIR's layout, or SVMlight files of feature vectors."""
    train: PathText = ""
    """A collection of the same documents whose queries train; those of the source test."""
    valid: PathText = ""
    """A collection of the same documents whose queries validate; default: 10 % of those that train."""
    train_queries: Annotated[Count, at_least(1)] = "all"
    """Training queries of a fold, drawn by --seed; BM25 does not search for those that no fold has."""
    folds: Annotated[Whole, at_least(3)] = 5
    """Cross-validation folds, if the collection has neither official ones nor a published split."""
    queries: Annotated[PathText, Parameter(alias="--queries")] = ""
    """A file of queries, TSV (id, tab, text) or JSONL, in the place of the collection's."""
    query_field: str = ""
    """Which field of the queries to take, such as description; default: text, the title of TREC topics."""
    language: str = "en"
    """Language of documents and queries for BM25: de, fr, zh, …, or standard (no stemming)."""


@dataclass(frozen=True)
class FirstStageSettings:
    """The ranking to re-rank."""

    run: PathText = ""
    """A TREC run file to re-rank instead of BM25."""
    index: PathText = "auto"
    """auto (own if there are documents, else prebuilt), own, a Pyserini prebuilt index, or a folder."""
    depth: Annotated[Whole, at_least(1), Parameter(alias="--depth")] = 150
    """Candidates per query."""
    k1: Annotated[float, between(0, 1e6)] = 0.9
    """BM25's k1."""
    b: Annotated[float, between(0, 1)] = 0.4
    """BM25's b."""
    threads: Annotated[Whole, between(0, 1024)] = 0
    """Threads for indexing and retrieval; 0: all cores."""
