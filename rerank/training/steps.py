"""The steps of an epoch: which lists each process takes, and the seeds of their dropout."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from accelerate import Accelerator
from torch import Tensor

from rerank.data.types import Candidates
from rerank.utils.errors import UserError


class Step(NamedTuple):
    """One process's lists of a step and their positions in the epoch; `total` counts the lists of all processes."""

    lists: list[Candidates]
    positions: list[int]
    total: int


def make_steps(lists: Sequence[Candidates], lists_per_step: int, accelerator: Accelerator) -> list[Step]:
    """The steps of an epoch; each process takes every n-th list of a step."""
    processes, rank = accelerator.num_processes, accelerator.process_index
    steps = []
    for first in range(0, len(lists), lists_per_step):
        step = lists[first : first + lists_per_step]
        if len(step) < processes:
            raise UserError(
                f"{processes} processes share the lists of a step, but a step has only {len(step)}: "
                f"use at most that many processes, or change --training.lists-per-step"
            )
        positions = list(range(first + rank, first + len(step), processes))
        steps.append(Step(list(step[rank::processes]), positions, len(step)))
    return steps


def dropout_seeds(mask: Tensor, positions: Sequence[int], epoch: int, seed: int) -> Tensor:
    """The dropout seed of each document, the same whichever process computes it: (documents,) int64."""
    list_seeds = torch.tensor([hash((seed, epoch, position)) % 2**62 for position in positions])
    return (list_seeds[:, None] + torch.arange(mask.shape[1]) * 7_368_787)[mask]
