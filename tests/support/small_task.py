"""A training task of a few lists in memory, for tests of the training loop."""

from pathlib import Path

import torch
from accelerate import Accelerator

from rerank.batches.batch import make_batch
from rerank.config import TrainingSettings
from rerank.experiments.runs.layout import FoldFolder
from rerank.losses import smoothi
from rerank.models.checkpoints import open_cross_encoder
from rerank.models.memory import TokenBudget
from rerank.training.loop import Objective, train
from tests.support.small_world import make_inputs


class ListsTask:
    """Trains on the same lists in every epoch; `saved` counts the checkpoints. Validation has one document."""

    def __init__(self, model, passages, lists, tokens=4096):
        self.model, self.passages, self.lists = model, passages, lists
        self.memory = TokenBudget(tokens)
        self.saved = 0

    def parameter_groups(self):
        return self.model.parameter_groups(1e-3, 1e-2)

    def training_lists(self, epoch):
        return self.lists

    def batch(self, lists):
        return make_batch(lists, self.passages)

    def score(self, part):
        return {"query": {"document": 0.0}}

    def save(self, folder: Path):
        folder.mkdir()
        (folder / "weights").write_text(f"{self.saved}")
        self.saved += 1


def open_task(encoder: Path, folder: Path, world, make=ListsTask, tokens=4096):
    """A task with the model of an encoder and the lists of `make_lists`, whose tokens go into `folder`."""
    queries, texts, lists = world
    folder.mkdir(exist_ok=True)
    model = open_cross_encoder(str(encoder), "mean", 0)
    inputs_of = make_inputs(folder / "tokens", model.tokenizer, model.max_length, queries, texts)
    return make(model, inputs_of, lists, tokens)


def train_task(task, folder: Path, validate, loss=smoothi, accelerator=None, **settings):
    """Trains in `folder`, on a CPU if there is no accelerator; `settings` are those of a training.

    `validate` gives the value of a run of the validation queries.
    """
    accelerator, folder = accelerator or Accelerator(cpu=True), FoldFolder(folder)
    objective = Objective(loss, lambda run: {"valid": validate(run)})
    task.training = TrainingSettings(**settings)
    return train(task, objective, folder, accelerator)


def weights_of(model) -> torch.Tensor:
    """All parameters, as one vector."""
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def without_times(history):
    """The records of a training without what no two trainings share."""
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]
