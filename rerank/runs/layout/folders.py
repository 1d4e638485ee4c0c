"""The folders of a collection, an experiment and a fold."""

from dataclasses import dataclass
from pathlib import Path

from rerank.config import PRETRAINED, CollectionSettings, FirstStageSettings
from rerank.data.folds import FINAL
from rerank.runs.layout.first_stage import COLLECTION, bm25_name, dense_name, fused_name
from rerank.runs.layout.pretraining import PRETRAINED_BEFORE, PretrainingFolder


@dataclass(frozen=True)
class FoldFolder:
    """The results of one fold of an experiment, or of its final model, which has no test queries."""

    path: Path

    @property
    def name(self) -> str:
        """The fold's name, such as "1"."""
        return self.path.name.removeprefix("fold")

    @property
    def experiment(self) -> "ExperimentFolder":
        """The folder of the experiment."""
        return ExperimentFolder(self.path.parent)

    @property
    def begun(self) -> bool:
        """Whether the fold was trained, to the end or not."""
        return self.state.exists() or self.finished

    @property
    def checkpoint(self) -> Path:
        """The folder of the best epoch's model."""
        return self.path / "checkpoint"

    @property
    def state(self) -> Path:
        """The folder of the weights and the optimizer after the last epoch, while the fold is unfinished."""
        return self.path / "state"

    @property
    def log(self) -> Path:
        """One JSON record per epoch."""
        return self.path / "log.jsonl"

    @property
    def manifest(self) -> Path:
        """Settings, versions, device, hashes and results."""
        return self.path / "manifest.json"

    @property
    def valid_run(self) -> Path:
        """The run of the validation queries by the best epoch's model."""
        return self.path / "valid.run"

    @property
    def test_run(self) -> Path:
        """The run of the test queries."""
        return self.path / "test.run"

    @property
    def tag(self) -> str:
        """The last column of the fold's run files: the name of the experiment."""
        return self.path.absolute().parent.name

    @property
    def tracking(self) -> Path:
        """The files of an experiment tracker that writes files."""
        return self.path / "tracking"

    @property
    def passages(self) -> Path:
        """Which passage of each test document scored highest."""
        return self.path / "test.passages.json"

    @property
    def validation_means(self) -> Path:
        """Means over the validation queries, kept so that sweeps and tables compute them once."""
        return self.path / "valid.json"

    @property
    def finished(self) -> bool:
        """Whether the fold has what is written last: its test run; of the final model, the manifest."""
        return (self.manifest if self.name == FINAL else self.test_run).exists()


@dataclass(frozen=True)
class ExperimentFolder:
    """The results of one experiment: its settings, its folds, and their test runs in one file."""

    path: Path

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.path.absolute().name

    @property
    def settings(self) -> Path:
        """The configuration as TOML."""
        return self.path / "config.toml"

    @property
    def claims(self) -> Path:
        """A lock that every command at work in the folder shares."""
        return self.path / "claims.lock"

    @property
    def lists(self) -> Path:
        """The hash of the file of training lists, if the experiment has one."""
        return self.path / "lists.json"

    @property
    def all_run(self) -> Path:
        """The test runs of all folds in one file; written when all folds are finished."""
        return self.path / "all.run"

    def fold(self, name: str) -> FoldFolder:
        """The folder of the fold of that name, or of the final model."""
        return FoldFolder(self.path / (FINAL if name == FINAL else f"fold{name}"))

    @property
    def final(self) -> FoldFolder:
        """The folder of the model that is trained on all judged queries."""
        return self.fold(FINAL)

    @property
    def folds(self) -> list[FoldFolder]:
        """The folds that exist, in the order of their numbers."""
        folds = [FoldFolder(path) for path in self.path.glob("fold*") if path.is_dir()]
        return sorted(folds, key=lambda fold: (int(fold.name) if fold.name.isdecimal() else 0, fold.name))

    @property
    def models(self) -> list[FoldFolder]:
        """The folds that exist, and the final model if it exists."""
        return [*self.folds, *([self.final] if self.final.path.is_dir() else [])]

    @property
    def begun(self) -> bool:
        """Whether a fold or the final model was trained, to the end or not."""
        return any(model.begun for model in self.models)

    @property
    def has_results(self) -> bool:
        """Whether a fold is finished."""
        return any(fold.finished for fold in self.folds)

    @property
    def collection(self) -> "CollectionFolder":
        """The folder of the collection."""
        return CollectionFolder(self.path.absolute().parent)


@dataclass(frozen=True)
class CollectionFolder:
    """What all experiments of a collection share."""

    path: Path

    @property
    def qrels(self) -> Path:
        """The judgments."""
        return self.path / "qrels.txt"

    @property
    def folds(self) -> Path:
        """The query ids of each fold."""
        return self.path / "folds.json"

    @property
    def index(self) -> Path:
        """A cache: the Lucene index of the documents."""
        return self.path / "index"

    @property
    def tokens(self) -> Path:
        """A cache: the tokenised documents."""
        return self.path / "tokens"

    @property
    def embeddings(self) -> Path:
        """A cache: the vectors of the documents by bi-encoders."""
        return self.path / "embeddings"

    @property
    def features(self) -> Path:
        """A cache: the parsed feature vectors."""
        return self.path / "features"

    @property
    def feature_hashes(self) -> Path:
        """The hash of each fold's feature files."""
        return self.path / "features.json"

    def first_stage(
        self,
        settings: FirstStageSettings,
        collection: CollectionSettings = COLLECTION,
        queries: str = "",
        drawn: str = "",
    ) -> Path:
        """The run to re-rank: the one that the settings name, that several are fused into, a bi-encoder's, or BM25's.

        For `queries` and `drawn` see `bm25_name`.
        """
        if len(settings.runs) == 1:
            return Path(settings.runs[0])
        if settings.runs:
            return self.path / f"{fused_name(settings)}.run"
        name = (dense_name if settings.encoder else bm25_name)(settings, collection, queries, drawn)
        return self.path / f"{name}.run"

    @property
    def run_manifests(self) -> list[Path]:
        """The manifests of runs that were written here, such as those of `rerank score --then`."""
        return sorted([*self.path.glob("*.run.json"), *self.path.glob("*.run.gz.json")])

    def pseudo_query_run(self, identity: str) -> Path:
        """Lists of pseudo-queries for teachers to score; a hash names the documents and the settings."""
        return self.path / f"pseudo-queries-{identity}.run"

    def teacher_candidates(self, identity: str) -> Path:
        """The candidates of all queries, for teachers to score; a hash names the first stage and the queries."""
        return self.path / f"teacher-candidates-{identity}.run"

    def teacher_lists(self, identity: str) -> Path:
        """Lists with teachers' scores, as training lists; a hash names the teachers and what they scored."""
        return self.path / f"teacher-{identity}.jsonl"

    def teacher_run(self, identity: str) -> Path:
        """The scores of a teacher; a hash names the teacher and what it scored."""
        return self.path / f"teacher-{identity}.run"

    def experiment(self, name: str) -> ExperimentFolder:
        """The folder of the experiment of that name."""
        return ExperimentFolder(self.path / name)

    @property
    def experiments(self) -> list[ExperimentFolder]:
        """The experiments that have settings, by name."""
        return [ExperimentFolder(path.parent) for path in sorted(self.path.glob("*/config.toml"))]

    @property
    def has_results(self) -> bool:
        """Whether an experiment has a finished fold."""
        return any(ExperimentFolder(path).has_results for path in self.path.glob("*/"))

    @property
    def pretrainings(self) -> list[PretrainingFolder]:
        """The pre-trainings that were begun, by name."""
        paths = (path for begin in (PRETRAINED_BEFORE, PRETRAINED) for path in self.path.glob(f"{begin}*"))
        return [PretrainingFolder(path) for path in sorted(paths) if path.is_dir()]

    def pretraining(self, identity: str) -> PretrainingFolder:
        """The folder of the pre-training with that hash."""
        before = self.path / f"{PRETRAINED_BEFORE}{identity}"
        return PretrainingFolder(before if before.is_dir() else self.path / f"{PRETRAINED}{identity}")
