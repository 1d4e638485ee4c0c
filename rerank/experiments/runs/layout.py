"""The names of files and folders in runs/; no other module has them.

runs/<collection>/                     CollectionFolder
runs/<collection>/<experiment>/        ExperimentFolder
runs/<collection>/<experiment>/fold1/  FoldFolder, also final/, the model to deploy
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from rerank.data.types import FINAL
from rerank.utils.inside import inside
from rerank.utils.locks import is_locked

MANIFEST = "manifest.json"

LOCK = "fold"
"""The lock that a command holds in the folder of a fold while it trains the fold."""


@dataclass(frozen=True)
class Inside:
    """An attribute of a folder: the path of the file or subfolder `name`."""

    name: str

    def __get__(self, folder: "FoldFolder | ExperimentFolder | CollectionFolder", owner: type) -> Path:
        return Path(folder.path, self.name)


@dataclass(frozen=True)
class Cache(Inside):
    """An attribute of a collection's folder: the path of a cache. Raises UserError for a link that leads elsewhere."""

    def __get__(self, folder: "FoldFolder | ExperimentFolder | CollectionFolder", owner: type) -> Path:
        return inside(folder.path, self.name)


@dataclass(frozen=True)
class FoldFolder:
    """The results of one fold of an experiment, or of its final model, which has no test queries."""

    path: Path

    checkpoint = Inside("checkpoint")  # the folder of the best epoch's model
    state = Inside("state")  # weights and optimizer after the last epoch of an unfinished training
    inputs = Inside("inputs.json")  # the hashes of what an unfinished training learns from
    log = Inside("log.jsonl")  # one JSON record per epoch
    manifest = Inside(MANIFEST)  # settings, versions, device, hashes and results
    tracking = Inside("tracking")  # the files of an experiment tracker that writes files
    valid_run = Inside("valid.run")  # the run of the validation queries by the best epoch's model
    test_run = Inside("test.run")  # the run of the test queries

    @property
    def name(self) -> str:
        return self.path.name.removeprefix("fold")

    @property
    def tag(self) -> str:
        """The last column of the fold's run files: the name of the experiment."""
        return self.path.absolute().parent.name

    @property
    def experiment(self) -> "ExperimentFolder":
        return ExperimentFolder(self.path.parent)

    @property
    def begun(self) -> bool:
        """Whether a training of the fold or the final model has begun, is finished, or runs now."""
        return self.state.exists() or self.finished or is_locked(self.path, LOCK)

    @property
    def finished(self) -> bool:
        """Whether the fold has the file that is written last: its test run, or the final model's manifest."""
        return (self.manifest if self.name == FINAL else self.test_run).exists()


@dataclass(frozen=True)
class ExperimentFolder:
    """The results of one experiment: its settings, its folds, and their test runs in one file."""

    path: Path

    settings = Inside("config.toml")  # the configuration as TOML
    all_run = Inside("all.run")  # the test runs of all folds in one file; written when all folds are finished

    @property
    def name(self) -> str:
        return self.path.absolute().name

    @property
    def collection(self) -> "CollectionFolder":
        return CollectionFolder(self.path.absolute().parent)

    def fold(self, name: str) -> FoldFolder:
        """The fold of that name, or the final model. Raises UserError for a link that leads out of the folder."""
        return FoldFolder(inside(self.path, FINAL if name == FINAL else f"fold{name}"))

    @property
    def folds(self) -> list[FoldFolder]:
        """The folds that exist, in the order of their numbers."""
        folds = [FoldFolder(path) for path in self.path.glob("fold*") if path.is_dir()]
        return sorted(folds, key=lambda fold: (int(fold.name) if fold.name.isdecimal() else 0, fold.name))

    @property
    def models(self) -> list[FoldFolder]:
        """The folds that exist, and the final model if it exists."""
        final = self.fold(FINAL)
        return [*self.folds, *([final] if final.path.is_dir() else [])]

    @property
    def has_results(self) -> bool:
        return any(fold.finished for fold in self.folds)


@dataclass(frozen=True)
class CollectionFolder:
    """The files that all experiments of a collection share, and the experiments."""

    path: Path

    qrels = Inside("qrels.txt")  # the judgments
    folds = Inside("folds.json")  # the query ids of each fold
    index = Cache("index")  # the Lucene index of the documents
    tokens = Cache("tokens")  # the tokenised documents
    embeddings = Cache("embeddings")  # the vectors of the documents by bi-encoders
    features = Cache("features")  # the parsed feature vectors
    feature_hashes = Inside("features.json")  # the hash of each fold's feature files

    def bm25_run(self, differences: Mapping[str, object] = MappingProxyType({})) -> Path:
        """BM25's run: bm25.run with the settings of the first one, else with what differs from them in its name.

        >>> str(CollectionFolder(Path("towns")).bm25_run({"k1": 1.2, "b": 0.0, "depth": 15, "query_field": ""}))
        'towns/bm25-k1=1.2-b=0.0-depth=15-query_field=default.run'
        """
        words = "".join(f"-{name}={'default' if value == '' else value}" for name, value in differences.items())
        return self.path / ("bm25" + re.sub(r"[\s/]", "_", words) + ".run")

    def teacher(self, identity: str) -> tuple[Path, Path]:
        """A teacher's run, and the training lists with its scores; `identity` is a hash of teacher and inputs."""
        return self.path / f"teacher-{identity}.run", self.path / f"teacher-{identity}.jsonl"

    def experiment(self, name: str) -> ExperimentFolder:
        """The experiment of that name. Raises UserError for a link that leads out of the folder."""
        return ExperimentFolder(inside(self.path, name))

    @property
    def experiments(self) -> list[ExperimentFolder]:
        """The experiments that have settings, by name."""
        return [ExperimentFolder(path.parent) for path in sorted(self.path.glob("*/config.toml"))]

    @property
    def has_results(self) -> bool:
        return any(ExperimentFolder(path).has_results for path in self.path.glob("*/"))
