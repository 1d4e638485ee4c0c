"""The settings of what is ranked: the collection and the first stage. See `rerank.config.settings`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from rerank.utils.errors import UserError
from rerank.utils.parameters import Count, PathText, PathTexts, Whole, at_least, between, section


@section("collection", 1)
@dataclass(frozen=True)
class CollectionSettings:
    """The documents, queries and, to train and to evaluate, relevance judgments."""

    source: Annotated[PathText, Parameter(alias="--collection")] = "disks45/nocr/trec-robust-2004"
    """An ir_datasets id, a folder or a .zip in BEIR's layout, or SVMlight files of feature vectors."""
    train: PathText = ""
    """A collection of the same documents whose queries train; those of the source test."""
    valid: PathText = ""
    """A collection of the same documents whose queries validate; default: 10 % of those that train."""
    train_queries: Annotated[Count, at_least(1)] = "all"
    """Training queries of a fold, drawn by --seed; BM25 does not search for those that no fold has."""
    folds: Annotated[Whole, at_least(3)] = 5
    """Cross-validation folds, if the collection has neither official ones nor a published split."""
    queries: PathText = ""
    """A file of queries, TSV (id, tab, text) or JSONL, in the place of the collection's."""
    query_field: str = ""
    """Which field of the queries to take, such as description; default: text, the title of TREC topics."""
    language: str = "en"
    """Language of documents and queries for BM25: de, fr, zh, …, or standard (no stemming)."""


@section("first-stage", 2)
@dataclass(frozen=True)
class FirstStageSettings:
    """The ranking to re-rank."""

    run: PathTexts = ""
    """A TREC run file to re-rank instead of BM25, or several, which are fused."""
    fusion: Literal["rrf", "interpolate"] = "rrf"
    """How several runs are fused: by reciprocal rank, or with weights tuned on the validation queries of the fold."""
    encoder: PathText = ""
    """A bi-encoder (sentence-transformers) that retrieves instead of BM25: a hub name or a folder."""
    feedback: PathText = ""
    """A TREC run whose best 3 documents are added to each query's vector, with an encoder (Rocchio)."""
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

    @property
    def runs(self) -> tuple[str, ...]:
        """The files of `run`; () if they are not given, and the first stage is retrieved."""
        return ((self.run,) if self.run else ()) if isinstance(self.run, str) else tuple(self.run)

    @property
    def is_bm25(self) -> bool:
        """Whether BM25 retrieves."""
        return not self.run and not self.encoder

    def check(self) -> None:
        """Raises UserError for settings that contradict each other."""
        count, runs = len(self.runs), [Path(run).absolute() for run in self.runs]
        if count and self.encoder:
            raise UserError(
                f"--first-stage.encoder {self.encoder}: of no effect with --first-stage.run; give one of them, or the "
                "encoder's run, which `rerank retrieve` writes, among the runs"
            )
        if self.feedback and not self.encoder:
            raise UserError(
                f"--first-stage.feedback {self.feedback}: moves the vectors of queries, so it needs a bi-encoder, "
                "--first-stage.encoder; leave it out, or give both"
            )
        if count < 2 and self.fusion != "rrf":
            raise UserError(
                f"--first-stage.fusion {self.fusion}: expected several runs in --first-stage.run, got {count}"
            )
        for place, run in enumerate(self.runs):
            if runs[place] in runs[:place]:
                raise UserError(f"--first-stage.run: {run}: given twice; expected each run once")
