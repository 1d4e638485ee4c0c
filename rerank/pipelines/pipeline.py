"""Pipeline: named stages; the last stage answers. A fitted pipeline ranks queries and finds documents."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.config.settings import Precision
from rerank.data.given import given_count, given_number
from rerank.data.types import Found, Hit, Run
from rerank.pipelines.evidence_table import Evidence
from rerank.pipelines.fitted import Fitted, find
from rerank.pipelines.folder import check_place, load_fitted, save_again
from rerank.pipelines.graph import as_toml, in_order, read_pipeline
from rerank.pipelines.record import read_evidence
from rerank.pipelines.stages.base import Stage, below, is_stage
from rerank.pipelines.stages.composition import Stages
from rerank.pipelines.transformer import make_transformer
from rerank.utils.errors import UserError
from rerank.utils.texts import check_path, texts_by_id

if TYPE_CHECKING:
    from pyterrier import Transformer


class Pipeline:
    """Named stages; each ranks the documents that the stages below it found, and the last one answers.

    >>> from rerank.pipelines.stages.bm25 import BM25Stage
    >>> from rerank.pipelines.stages.cross_encoder import CrossEncoderStage
    >>> Pipeline(bm25=BM25Stage(k1=1.2, b=0.75), answer=CrossEncoderStage("bm25", "bert-base-uncased"))
    Pipeline(bm25, answer: cross-encoder of bm25)

    `>>` puts a stage on top of the last one, `+` fuses two pipelines or stages, as in PyTerrier:

    >>> from rerank.pipelines.stages import DenseStage
    >>> Pipeline((BM25Stage() + DenseStage()) >> CrossEncoderStage())
    Pipeline(bm25, dense, fusion of bm25, dense, cross-encoder of fusion)

    `rerank.fit` fits a pipeline on a collection; `Pipeline.load` opens a fitted one. Raises UserError for stages that
    are no pipeline (`graph.in_order`).
    """

    def __init__(self, stages: Mapping[str, Stage] = {}, /, **more: Stage) -> None:
        if not isinstance(stages, Mapping):
            raise TypeError(f"stages: expected {{name: stage}}, got {type(stages).__name__}")
        for name, one in {**stages, **more}.items():
            if not (isinstance(name, str) and is_stage(one)):
                raise TypeError(f"stages: expected {{name: stage}}, got {name!r:.40}: {one!r:.80}")
        self.stages = in_order({**stages, **more})
        self._fitted: Fitted | None = None

    @classmethod
    def read(cls, path: str | Path) -> "Pipeline":
        """Reads a pipeline, which is not fitted, from a TOML file. Raises UserError as `graph.read_pipeline`."""
        return cls(read_pipeline(Path(path)))

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto", precision: Precision = "auto") -> "Pipeline":
        """Opens a folder that `rerank.fit` or `save` wrote. Raises UserError if it is damaged."""
        return cls.of(load_fitted(Path(check_path("folder", folder)), device, precision))

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
        """A pipeline with `other` on top of the last stage, not fitted; raises UserError if it does not re-rank."""
        return Pipeline(Stages(self.stages) >> other)

    def __add__(self, other: "Pipeline | Stages | Stage") -> "Pipeline":
        """A pipeline of the stages of both and the fusion of their last stages, not fitted."""
        return Pipeline(Stages(self.stages) + (Stages(other.stages) if isinstance(other, Pipeline) else other))

    @property
    def evidence(self) -> Evidence:
        """The gain of each stage, as `fit` measured it. Raises UserError if `fit` did not make the pipeline."""
        record = read_evidence(self.fitted.folder) if self.fitted.folder != Path() else None
        if record is None:
            raise UserError(f"{self!r}: has no evidence, as it was not fitted by rerank.fit")
        return Evidence(record)

    def __repr__(self) -> str:
        shown = []
        for name, settings in self.stages.items():
            names = below(settings)
            kind = "" if name == settings.kind else f": {settings.kind}"
            shown.append(f"{name}{kind}{' of ' + ', '.join(names) if names else ''}")
        return f"Pipeline({', '.join(shown)})"

    def to_toml(self) -> str:
        """The stages as TOML, as `Pipeline.read` reads them.

        >>> from rerank.pipelines.stages.bm25 import BM25Stage
        >>> print(Pipeline(bm25=BM25Stage(k1=1.2)).to_toml())
        [stages.bm25]
        kind = "bm25"
        k1 = 1.2
        <BLANKLINE>
        """
        return as_toml(self.stages)

    def rank(self, queries: Mapping[str, str]) -> Run:
        """The run of the last stage for queries, query_id to text. Raises UserError if the pipeline is not fitted."""
        return self.rank_all(queries)[self.answer]

    def rank_all(self, queries: Mapping[str, str]) -> dict[str, Run]:
        """The run of each stage by name; every stage ranks once. Raises UserError if the pipeline is not fitted."""
        return self.fitted.rank_all(texts_by_id("queries", queries))

    def search(self, query: str, top: int = 10, budget: float | None = None, explain: bool = False) -> list[Hit]:
        """The best documents for a query, with their rank and score in each stage.

        With `explain`, hits have the words that late interaction matched, marked in the snippet. With a `budget` of
        milliseconds, the last stage that ends in time answers; it is the last one of a hit's `stages`. Raises UserError
        for a query without text, and if the pipeline is not fitted.
        """
        return self.find(query, top, budget, explain).hits

    def find(self, query: str, top: int = 10, budget: float | None = None, explain: bool = False) -> Found:
        """As `search`, with the number of documents that are ranked, and a note if they are probably no answers."""
        given_count(top, "top")
        if budget is not None:
            given_number(budget, "budget")
        return find(self.fitted, query, top, budget, explain)

    def save(self, folder: str | Path) -> None:
        """Writes a fitted pipeline into a folder, with its evidence; a portable one stays portable.

        A pipeline in the folder is replaced.
        """
        check_place(Path(folder))
        save_again(self.fitted, Path(folder))

    def transformer(self) -> "Transformer":
        """A PyTerrier transformer: topics (qid, query) in, results (qid, query, docno, score, rank) out.

        Raises ImportError if PyTerrier is not installed.
        """
        return make_transformer(self.fitted)
