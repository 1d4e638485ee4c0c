"""The folder of a pre-training."""

from dataclasses import dataclass
from pathlib import Path

from rerank.config import PRETRAINED

PRETRAINED_BEFORE = "warmup-"
"""How the folders of pre-trainings began in version 0.1.0."""


@dataclass(frozen=True)
class PretrainingFolder:
    """A pre-training on pseudo-queries, shared by all experiments of the collection."""

    path: Path

    @property
    def identity(self) -> str:
        """The hash of everything that the result depends on."""
        return self.path.name.removeprefix(PRETRAINED)

    @property
    def checkpoint(self) -> Path:
        """The folder of the best model."""
        return self.path / "checkpoint"

    @property
    def lists(self) -> Path:
        """The training lists of the pseudo-queries."""
        return self.path / "lists.jsonl"

    @property
    def held_out(self) -> Path:
        """The lists that validate."""
        return self.path / "held-out.jsonl"

    @property
    def state(self) -> Path:
        """The training state, while the pre-training is unfinished."""
        return self.path / "state"

    @property
    def log(self) -> Path:
        """One JSON record per epoch."""
        return self.path / "log.jsonl"

    @property
    def valid_run(self) -> None:
        """Not kept: the ids of pseudo-queries contain spaces, which those of run files cannot."""
        return

    @property
    def tag(self) -> str:
        """The name of the pre-training."""
        return self.path.name

    @property
    def tracking(self) -> Path:
        """The files of an experiment tracker that writes files."""
        return self.path / "tracking"

    @property
    def tokens(self) -> Path:
        """The tokenised documents, while the pre-training is unfinished."""
        return self.path / "tokens"

    @property
    def manifest(self) -> Path:
        """Settings, versions and results; written last."""
        return self.path / "manifest.json"
