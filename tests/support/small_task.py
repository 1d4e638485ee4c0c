"""A training task of a few lists in memory, for tests of the training loop."""

from pathlib import Path

from rerank.batches.batch import make_batch
from rerank.models.memory import TokenBudget


class ListsTask:
    """Trains on the same lists in every epoch; `saved` counts the checkpoints. There are no validation queries."""

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
        return {}

    def mean_loss(self, run, part, loss):
        raise NotImplementedError

    def qrels(self, part):
        return {}

    def save(self, folder: Path):
        folder.mkdir()
        (folder / "weights").write_text(f"{self.saved}")
        self.saved += 1
