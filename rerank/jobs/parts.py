"""The parts of a run that is scored: which queries are in a part, the folder of their files, and how they are joined.

A part is finished once its file is renamed into place. Every process that scores parts of a run derives the same plan
from the inputs, so processes need no lock: two that score the same part write the same file.
"""

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rerank.data.trec import new_file, write_run
from rerank.data.types import Run
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.json_files import read_json
from rerank.utils.locks import temporary_place

DEVICE = "device.json"
MOST_PARTS = 100
"""By default an interrupted command loses at most one hundredth of its work, …"""
LEAST_TOKENS = 2**18
"""… or this many tokens: 4 forward passes of a GPU, 64 of a CPU. Smaller parts would leave passes half empty."""


def default_parts(tokens: np.ndarray) -> int:
    """The number of parts for queries whose candidates have these numbers of tokens, (queries,)."""
    return max(1, min(MOST_PARTS, len(tokens), int(tokens.sum()) // LEAST_TOKENS))


def cut(tokens: np.ndarray, parts: int) -> list[int]:
    """Cuts queries into parts of about equal tokens, from the tokens of each query, (queries,).

    Part i is the queries bounds[i]:bounds[i + 1] of the (parts + 1) bounds; no part is empty.

    >>> cut(np.array([5, 1, 1, 1, 1, 1]), 2)
    [0, 1, 6]
    """
    ends, steps = tokens.cumsum(), np.arange(1, parts)
    inner = np.searchsorted(ends, ends[-1] * steps / parts, side="left") + 1
    inner = np.maximum.accumulate(np.maximum(inner, steps) - steps) + steps  # each part has a query
    inner = np.minimum(inner, len(tokens) - parts + steps)
    return [0, *inner.tolist(), len(tokens)]


@dataclass(frozen=True)
class Parts:
    """The parts of the run `out`; part number n, from 1, is the queries bounds[n - 1]:bounds[n].

    `facts` are what the scores depend on, in JSON's types; their name is the last column of the run. A hash of them is
    in the name of the folder, so that parts of different inputs are never joined.
    """

    out: Path
    facts: dict[str, Any]
    bounds: list[int]

    @property
    def folder(self) -> Path:
        plan = short_hash(json.dumps(self.facts, sort_keys=True), *self.bounds)
        return self.out.with_name(f"{self.out.name}.parts-{plan[:8]}")

    @property
    def numbers(self) -> range:
        return range(1, len(self.bounds))

    def queries(self, number: int) -> slice:
        """The queries of a part, among those of the run."""
        return slice(self.bounds[number - 1], self.bounds[number])

    def file(self, number: int) -> Path:
        """The run of a part."""
        return self.folder / f"{number:05}.run"

    def missing(self) -> list[int]:
        """The numbers of the parts that are not finished."""
        return [number for number in self.numbers if not self.file(number).exists()]

    def write(self, number: int, run: Run, device: dict[str, Any]) -> None:
        """Writes the facts of the device, and then the part."""
        with atomic_write(self.folder / DEVICE) as tmp:
            tmp.write_text(json.dumps(device), encoding="utf-8")
        write_run(self.file(number), run, self.facts["name"])

    def join(self) -> dict[str, Any]:
        """Writes the run from its parts and returns the facts of the device of the last one.

        Raises UserError if a part is missing.
        """
        if self.missing():
            raise UserError(f"{self.folder}: parts were removed while others were scored; run the command again")
        with new_file(self.out) as out:
            for number in self.numbers:
                with self.file(number).open("rb") as part:
                    shutil.copyfileobj(part, out)
        device: dict[str, Any] = read_json(self.folder / DEVICE, dict[str, Any], f"remove {self.folder}")
        return device

    def remove(self) -> None:
        """Removes the folder: other processes see all parts or none, also after a kill."""
        with contextlib.suppress(FileNotFoundError), temporary_place(self.folder) as place:
            os.replace(self.folder, place.new)
