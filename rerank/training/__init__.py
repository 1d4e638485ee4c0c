"""Training: the loop, exact gradients in bounded memory, validation and tracking.

It trains any `Task`, and does not depend on collections or experiments.
"""

from rerank.training.loop import train
from rerank.training.task import Task
from rerank.training.tracking import tracker

__all__ = ["Task", "tracker", "train"]
