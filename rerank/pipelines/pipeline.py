"""Pipeline: named stages, of which the last one answers; fitted, it ranks queries and finds documents."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerank.config.settings import Precision
from rerank.data.types import Hit, Run
from rerank.pipelines.evidence_table import Evidence
from rerank.pipelines.fitted import Fitted, search
from rerank.pipelines.folder import check_place, load_fitted, read_evidence, save_fitted
from rerank.pipelines.graph import as_toml, in_order, read_pipeline
from rerank.pipelines.stages.base import Stage, below
from rerank.pipelines.stages.composition import Stages
from rerank.pipelines.transformer import make_transformer
from rerank.utils.errors import UserError


class Pipeline:
    """Named stages, each of which ranks what the stages below it have found.

    >>> from rerank.pipelines.stages.bm25 import BM25Stage
    >>> from rerank.pipelines.stages.cross_encoder import CrossEncoderStage
    >>> Pipeline(bm25=BM25Stage(k1=1.2, b=0.75), answer=CrossEncoderStage("bm25", "bert-base-uncased"))
    Pipeline(bm25, answer: cross-encoder of bm25)

    `>>` puts a stage above the last one, `+` fuses two pipelines or stages, as in PyTerrier:

    >>> from rerank.pipelines.stages import DenseStage
    >>> Pipeline((BM25Stage() + DenseStage()) >> CrossEncoderStage())
    Pipeline(bm25, dense, fusion of bm25, dense, cross-encoder of fusion)

    `rerank.fit` fits a pipeline on a collection; `Pipeline.load` opens one that is fitted. Raises UserError for stages
    that are no pipeline (`graph.in_order`).
    """

    def __init__(self, stages: Mapping[str, Stage] = {}, /, **more: Stage) -> None:
        self.stages = in_order({**stages, **more})
        self._fitted: Fitted | None = None

    @classmethod
    def read(cls, path: str | Path) -> "Pipeline":
        """The pipeline of a TOML file, not fitted. Raises UserError as `graph.read_pipeline`."""
        return cls(read_pipeline(Path(path)))

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto", precision: Precision = "auto") -> "Pipeline":
        """The fitted pipeline of a folder that `rerank.fit` or `save` wrote. Raises UserError if it is damaged."""
        return cls.of(load_fitted(Path(folder), device, precision))

    @classmethod
    def of(cls, fitted: Fitted) -> "Pipeline":
        """The pipeline of fitted stages."""
        pipeline = cls(fitted.stages)
        pipeline._fitted = fitted
        return pipeline

    @property
    def answer(self) -> str:
        """The name of the stage that answers."""
        return list(self.stages)[-1]

    @property
    def fitted(self) -> Fitted:
        """The stages with their rankers. Raises UserError if the pipeline is not fitted."""
        if self._fitted is None:
            raise UserError(f"{self!r}: is not fitted; rerank.fit(collection, pipeline) fits it")
        return self._fitted

    def __rshift__(self, other: Stage) -> "Pipeline":
        """The stages, not fitted, and above the last one a stage that re-ranks. Raises UserError for another one."""
        return Pipeline(Stages(self.stages) >> other)

    def __add__(self, other: "Pipeline | Stages | Stage") -> "Pipeline":
        """The stages of both, not fitted, and the fusion of their last ones."""
        return Pipeline(Stages(self.stages) + (Stages(other.stages) if isinstance(other, Pipeline) else other))

    @property
    def evidence(self) -> Evidence:
        """What each stage is worth, as `fit` measured it. Raises UserError if `fit` did not make the pipeline."""
        if self.fitted.folder == Path():
            raise UserError(f"{self!r}: has no evidence, as it was not fitted by rerank.fit")
        return Evidence(read_evidence(self.fitted.folder))

    def __repr__(self) -> str:
        shown = []
        for name, settings in self.stages.items():
            names = below(settings)
            kind = "" if name == settings.kind else f": {settings.kind}"
            shown.append(f"{name}{kind}{' of ' + ', '.join(names) if names else ''}")
        return f"Pipeline({', '.join(shown)})"

    def to_toml(self) -> str:
        """The stages as TOML."""
        return as_toml(self.stages)

    def rank(self, queries: Mapping[str, str]) -> Run:
        """The ranking of each query, query_id to text, by the last stage. Raises UserError if it is not fitted."""
        return self.rank_all(queries)[self.answer]

    def rank_all(self, queries: Mapping[str, str]) -> dict[str, Run]:
        """The rankings of all stages, each of which ranks once: name of the stage to run."""
        return self.fitted.rank_all(queries)

    def search(self, query: str, top: int = 10, budget: float | None = None, explain: bool = False) -> list[Hit]:
        """The best documents for a query, with what each stage says of them.

        With `explain`, and a stage of late interaction, a hit has the words that matched, marked in its snippet.
        With a `budget` of milliseconds, the last stage that ends in time answers; it is the last one of a hit's stages.
        Raises UserError for a query without text, and if the pipeline is not fitted.
        """
        return search(self.fitted, query, top, budget, explain)

    def save(self, folder: str | Path) -> None:
        """Writes a fitted pipeline into a folder, which it replaces if that has a pipeline."""
        check_place(Path(folder))
        save_fitted(self.fitted, Path(folder))

    def transformer(self) -> Any:
        """A PyTerrier transformer: topics (qid, query) in, results (qid, query, docno, score, rank) out.

        Raises ImportError if PyTerrier is not installed.
        """
        return make_transformer(self.fitted)
