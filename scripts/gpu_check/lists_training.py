"""A small training with the training loop of `rerank train`, on lists in memory and without validation."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from rerank.batches.batch import Batch, make_batch
from rerank.config import TrainingSettings
from rerank.data.types import Candidates, Qrels, Run
from rerank.losses import smoothi
from rerank.models.checkpoints import save_cross_encoder
from rerank.models.memory import TokenBudget
from rerank.runs.layout import PretrainingFolder
from rerank.training.gradients import Loss
from rerank.training.loop import train
from scripts.benchmarks.workload import Workload
from scripts.gpu_check.setting import encoder_folder, open_documents
from scripts.gpu_check.sizes import TINY, Setting

LISTS, DOCUMENTS, LISTS_PER_STEP = 8, 4, 4
LR, HEAD_LR = 1e-3, 1e-2
"""Large enough that a few steps change the scores by far more than rounding does."""

TOKENS = 1024
"""The budget: less than a step has, so that its gradient is computed in parts."""

TRAINED_BOUNDS = {"cpu": 1e-2, "cuda": 5e-2, "mps": 5e-2}
"""The largest difference of scores after the same training on other processes, over what the training changed.

Sums in another order change the last bits of a gradient, and Adam divides the gradient by its own size. Without
Adam's moments, or with a gradient of half of the lists, the difference is above 0.1.
"""


class ListsTask:
    """Trains a workload's model on its lists, the same in every epoch (see `rerank.training.task.Task`)."""

    def __init__(self, workload: Workload) -> None:
        self.model = workload.model
        self.memory = TokenBudget(TOKENS)
        self.workload = workload
        self.epochs: list[int] = []
        """The epochs that were trained, counted from 0."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The encoder and the layer on top."""
        return self.model.parameter_groups(LR, HEAD_LR)

    def training_lists(self, epoch: int) -> Sequence[Candidates]:
        """All lists."""
        self.epochs.append(epoch)
        return self.workload.candidates

    def batch(self, lists: Sequence[Candidates]) -> Batch[Any]:
        """Their passages and labels."""
        return make_batch(lists, self.workload.builder)

    def score(self, part: str) -> Run:
        """No list validates."""
        return {}

    def mean_loss(self, run: Run, part: str, loss: Loss) -> float:
        """No list validates."""
        raise NotImplementedError

    def qrels(self, part: str) -> Qrels:
        """No list validates."""
        return {}

    def save(self, folder: Path) -> None:
        """A checkpoint."""
        save_cross_encoder(self.model, self.workload.tokenizer, folder, self.workload.builder.max_length)


def open_lists(folder: Path, setting: Setting) -> Workload:
    """The lists, with a fresh model of the encoder in a folder, on the CPU."""
    return open_documents(folder, LISTS, DOCUMENTS, setting.sizes)


def tiny_encoder() -> Any:
    """The folder of the encoder that is trained, as a context."""
    return encoder_folder(TINY)


def train_lists(
    workload: Workload, folder: Path, epochs: int, accelerator: Accelerator, loss: Callable[..., Tensor] = smoothi
) -> list[int]:
    """Trains the workload's model in place to the end of `epochs`, or goes on with what is in `folder`.

    Returns the epochs that this call trained, counted from 0.
    """
    task = ListsTask(workload)
    settings = TrainingSettings(epochs=epochs, lists_per_step=LISTS_PER_STEP, seed=7)
    train(task, loss, PretrainingFolder(folder), settings, accelerator, None)
    return task.epochs


def centred(scores: Tensor) -> Tensor:
    """(lists, documents) scores, less the mean of each list: no loss depends on it, so its gradient is rounding."""
    grid = scores.view(-1, DOCUMENTS)
    return grid - grid.mean(dim=1, keepdim=True)


def of_change(found: Tensor, expected: Tensor, before: Tensor) -> float:
    """The largest difference of scores after a training, over the largest change by that training."""
    difference = (centred(found) - centred(expected)).abs().max()
    return float(difference / (centred(expected) - centred(before)).abs().max().clamp_min(torch.finfo().tiny))
