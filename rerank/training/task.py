"""What training one fold needs, whatever its documents are: made by `text_fold` and `feature_fold`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from rerank.batches.batch import Batch
from rerank.models.memory import TokenBudget
from rerank.models.scoring import Passages
from rerank.types import Qrels, Run


class FoldWork(NamedTuple):
    """The parts that differ between text and features.

    `model` is trained in place, `parameter_groups` are those of an optimizer. `epoch_lists` gives the training lists of
    an epoch, `batch_of` their batch. `validate` measures the model and gives the value to maximise; `valid_run` is the
    run of the last `validate`. `save` writes the model's checkpoint into a folder that is not there yet, `test_run`
    scores the test queries with the model of such a folder, and `passages` are the best of that run. `facts` are for
    the manifest. `judgments` are those of each part of the fold (train, valid, test) that are kept for evaluation.
    `budget` is None where a step must be one forward pass.
    """

    model: nn.Module
    parameter_groups: list[dict[str, Any]]
    epoch_lists: Callable[[int], Sequence[Any]]
    batch_of: Callable[[Sequence[Any]], Batch[Any]]
    validate: Callable[[], float]
    valid_run: Callable[[], Run]
    save: Callable[[Path], None]
    test_run: Callable[[Path], Run]
    passages: Callable[[], Passages]
    facts: Callable[[], dict[str, Any]]
    judgments: Callable[[], dict[str, Qrels]]
    budget: TokenBudget | None
