"""The stage `cross-encoder`: a model that is fine-tuned as by `rerank train`, or a trained one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from rerank.config import Config, EncoderSettings, ListsSettings, LossSettings, TrainingSettings
from rerank.data.candidates import select_candidates
from rerank.data.trec import ranked
from rerank.data.types import BestPassage, Fold, Run
from rerank.evaluation.fusion import place_above
from rerank.experiments.runs.layout import FoldFolder
from rerank.pipelines.stages.base import Learns, expect_one_below, stage
from rerank.pipelines.stages.composition import Composable
from rerank.pipelines.stages.reranking import check_training_settings
from rerank.pipelines.stages.world import World
from rerank.utils.inside import copy_files
from rerank.utils.integrity import files_below
from rerank.utils.parameters import Whole, at_least
from rerank.utils.progress import timed_sample

if TYPE_CHECKING:
    from accelerate import Accelerator

    from rerank.experiments.text_task import TextTask
    from rerank.models.reranker import Reranker

RankPassages = Callable[..., list[BestPassage]]
"""The signature of `Reranker.rank_passages`: (query, texts, first_scores=) -> the texts, best first."""


@stage
@dataclass(frozen=True)
class CrossEncoderStage(Composable):
    """Re-ranks the best documents of the stage below with a model that reads query and document together.

    The model is fine-tuned as by `rerank train`, with the same settings, or used without training. Documents below
    `depth` keep their order.

    >>> CrossEncoderStage("bm25", "cross-encoder/ms-marco-MiniLM-L6-v2", trained=False).learns
    'nothing'
    """

    kind: ClassVar[str] = "cross-encoder"
    of: str | tuple[str, ...] = ""
    """The stage whose documents are ranked."""
    encoder: str | EncoderSettings = field(default_factory=EncoderSettings)
    """A Hugging Face encoder or cross-encoder: a hub name, a folder, or the settings of one."""
    trained: bool = True
    """Whether the judgments fine-tune the model; otherwise it is used without training."""
    depth: Annotated[Whole, at_least(1)] = 50
    """Documents of a query that are ranked."""
    lists: ListsSettings = field(default_factory=ListsSettings)
    """Which candidates of a query form a training list."""
    loss: str | LossSettings = field(default_factory=LossSettings)
    """The loss and its hyperparameters."""
    training: TrainingSettings = field(default_factory=TrainingSettings)
    """How the model is fine-tuned; device and seed, and a precision that a command names, are those of all stages."""

    @property
    def learns(self) -> Learns:
        """Expensively if the model is fine-tuned."""
        return "expensively" if self.trained else "nothing"

    def check(self) -> None:
        expect_one_below(self)
        check_training_settings(self.config(Config()))

    def fit(self, world: World, fold: Fold, below: Sequence[Run], folder: Path) -> "CrossEncoderRanker":
        """Trains the task of `rerank train` on these queries; a fold with the same name gives the same model."""
        if not self.trained:
            return self.open(world, folder)
        from rerank.training.device import kept_torch_settings, open_accelerator  # these load torch
        from rerank.training.estimate import say_before
        from rerank.training.objective import train_to_rank

        config, (first,) = self.config(world.config), below
        with kept_torch_settings():
            accelerator = open_accelerator(config.training)
            task = self._task(world, fold, first, accelerator)
            say_before(task, config.loss, accelerator)
            train_to_rank(task, config.loss, FoldFolder(folder), accelerator)
            accelerator.free_memory()
        return self.open(world, folder)

    def _task(self, world: World, fold: Fold, first: Run, accelerator: "Accelerator") -> "TextTask":
        """The training of a fold, which re-ranks the documents of a run."""
        from rerank.experiments.text_task import TextDataset, TextTask  # loads torch

        config, query_ids = self.config(world.config), [*fold.train, *fold.valid]
        keep_scores = config.encoder.first_stage_weight > 0
        candidates = select_candidates(first, world.collection.qrels, self.depth, query_ids, keep_scores)
        dataset = TextDataset(config, world.folder, world.texts, None, candidates)
        return TextTask(dataset, Fold(fold.name, fold.train, fold.valid, ()), accelerator)

    def seconds_to_fit(self, world: World, fold: Fold, below: Run) -> float:
        """The seconds of all epochs, none of which ends the training early, and of ranking the test queries."""
        if not self.trained:
            ranker = self.open(world, Path())
            queries = {query_id: world.collection.queries[query_id] for query_id in below}
            one_by_one = ({query_id: text} for query_id, text in queries.items())
            return len(fold.test) * timed_sample(lambda query: ranker.rank(query, [below]), one_by_one)
        from rerank.training.device import kept_torch_settings, open_accelerator  # these load torch
        from rerank.training.estimate import measure

        config = self.config(world.config)
        train, valid = (tuple(q for q in split if q in below) for split in (fold.train, fold.valid))
        with kept_torch_settings():
            accelerator = open_accelerator(config.training)
            task = self._task(world, Fold(fold.name, train, valid, ()), below, accelerator)
            cost = measure(task, config.loss, accelerator)
            accelerator.free_memory()
        lists, validated = config.training.lists_per_epoch, config.training.validate_queries
        cost = replace(
            cost,
            lists=len(fold.train) if lists == "all" else lists,
            validated=(len(fold.valid) if validated == "all" else min(validated, len(fold.valid))) * self.depth,
            tested=len(fold.test) * self.depth,
        )
        return cost.seconds(config.training.epochs)

    def open(self, world: World, folder: Path) -> "CrossEncoderRanker":
        from rerank.training.device import open_reranker

        config = self.config(world.config)
        checkpoint = str(FoldFolder(folder).checkpoint) if self.trained else world.place_of(config.encoder.name)
        return CrossEncoderRanker(self, world, open_reranker(config, checkpoint))

    def config(self, shared: Config) -> Config:
        """The settings of an experiment: those of this stage, and the `shared` ones of all stages.

        A shared precision other than "auto" replaces that of this stage.
        """
        device, seed, precision = shared.training.device, shared.training.seed, shared.training.precision
        if precision == "auto":
            precision = self.training.precision
        return Config(
            collection=shared.collection,
            first_stage=replace(shared.first_stage, depth=self.depth),
            encoder=self.encoder,
            lists=self.lists,
            loss=self.loss,
            training=replace(self.training, device=device, seed=seed, precision=precision),
            output=shared.output,
        )


@dataclass(frozen=True)
class CrossEncoderRanker:
    """Ranks with a trained model.

    `rank_elsewhere`, if given, replaces the model for single queries: a server's function that batches requests.
    """

    settings: CrossEncoderStage
    world: World
    reranker: "Reranker"
    rank_elsewhere: RankPassages | None = None

    def rank(self, queries: Mapping[str, str], below: Sequence[Run]) -> Run:
        """The documents of the stage below; the first `depth` are scored, the others follow in their order."""
        (first,) = below
        first = {query_id: first[query_id] for query_id in queries if first.get(query_id)}
        if not first:
            return {}
        return place_above(self.reranker.rerank_texts(first, queries, self.world.texts, self.settings.depth), first)

    def rank_one(self, query_id: str, query: str, first: dict[str, float]) -> tuple[Run, dict[str, BestPassage]]:
        """The run of one query, and, for the scored documents, the passage that the model scored highest."""
        doc_ids = ranked(first)[: self.settings.depth]
        texts = [document.text for document in self.world.texts.get(doc_ids)]
        rank = self.rank_elsewhere or self.reranker.rank_passages
        best = rank(query, texts, first_scores=[first[doc_id] for doc_id in doc_ids])
        passages = {doc_ids[found.index]: found for found in best}
        scores = {doc_id: found.score for doc_id, found in passages.items()}
        return place_above({query_id: scores}, {query_id: first}), passages

    def save(self, folder: Path) -> None:
        if self.settings.trained:
            checkpoint = Path(self.reranker.name)
            copy_files(checkpoint, FoldFolder(folder).checkpoint, files_below(checkpoint))
