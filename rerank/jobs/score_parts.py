"""The parts of a run that is scored: which queries are in a part, the files in OUT.parts, and how they become OUT.

A part is finished once its file is renamed into place. Every process that scores parts of a run derives the same plan
from the inputs, so processes need no lock: two that score the same part write the same file.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rerank.data.trec import write_run
from rerank.data.types import Run
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.json_files import parse_json
from rerank.utils.temporary import temporary_place

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

    `facts` are what the scores depend on, in JSON's types; their name is the last column of the run.
    """

    out: Path
    folder: Path
    facts: dict[str, Any]
    bounds: list[int]

    @property
    def numbers(self) -> range:
        """The numbers of all parts."""
        return range(1, len(self.bounds))

    @property
    def plan(self) -> str:
        """The hash of what the scores depend on, including the cut."""
        return short_hash(json.dumps(self.facts, sort_keys=True), *self.bounds)

    def queries(self, number: int) -> slice:
        """The queries of a part, among those of the run."""
        return slice(self.bounds[number - 1], self.bounds[number])

    def file(self, number: int) -> Path:
        """The run of a part."""
        return self.folder / f"{number:05}.run"

    def missing(self, numbers: Iterable[int] | None = None) -> list[int]:
        """Those of the numbers, by default of all, whose parts are not finished."""
        return [number for number in numbers or self.numbers if not self.file(number).exists()]

    def open(self) -> None:
        """Records the plan in the folder; raises UserError if the folder holds anything but parts of this plan."""
        record = self.folder / "plan"
        if record.exists() or (self.folder.exists() and any(self.folder.glob("[!.]*"))):
            if not record.exists() or record.read_text(encoding="utf-8") != self.plan:
                raise UserError(
                    f"{self.folder}: has parts of another run, or other files: the model, the first stage, the texts, "
                    "a setting or --parts differs; remove the folder to score anew, or take another --out"
                )
            return
        with atomic_write(record) as tmp:
            tmp.write_text(self.plan, encoding="utf-8")

    def write(self, number: int, run: Run, device: dict[str, Any]) -> None:
        """Writes the facts of the device, and then the part."""
        with atomic_write(self._device(number)) as tmp:
            tmp.write_text(json.dumps(device), encoding="utf-8")
        write_run(self.file(number), run, self.facts["name"])

    def join(self) -> dict[str, Any]:
        """Writes the run from its parts and returns the facts of the devices; one that differs is a list of its values.

        Raises FileNotFoundError if a part is missing, and UserError if the parts were scored in different precisions.
        """
        devices = [self._read_device(number) for number in self.numbers]
        facts = {key: _distinct(device.get(key) for device in devices) for key in devices[0]}
        for key in ("precision", "tf32"):
            if len(facts[key]) > 1:
                raise UserError(
                    f"{self.folder}: its parts were scored with {key} {' and '.join(map(str, facts[key]))}; remove it, "
                    "and score all parts on one kind of device or set --training.precision"
                )
        with atomic_write(self.out) as tmp, tmp.open("wb") as target:
            packer = zlib.compressobj(9, wbits=31) if self.out.name.endswith(".gz") else None  # without a time
            for number in self.numbers:
                lines = self.file(number).read_bytes()
                target.write(packer.compress(lines) if packer else lines)
            if packer:
                target.write(packer.flush())
        return {key: values[0] if len(values) == 1 else values for key, values in facts.items()}

    def remove(self) -> None:
        """Removes the folder: other processes see all parts or none, also after a kill."""
        with contextlib.suppress(FileNotFoundError), temporary_place(self.folder) as place:
            os.replace(self.folder, place.new)

    def _device(self, number: int) -> Path:
        return self.folder / f"{number:05}.json"

    def _read_device(self, number: int) -> dict[str, Any]:
        file = self._device(number)
        try:
            facts: dict[str, Any] = parse_json(file.read_bytes(), dict[str, Any])
        except ValueError as error:
            raise UserError(f"{file}: {error}; remove {self.folder} to score all parts again") from error
        return facts


def _distinct(values: Iterable[Any]) -> list[Any]:
    """The different values, which need not be hashable, in the order of their first occurrence."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
