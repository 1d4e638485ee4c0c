"""The parts of a run that is scored: a plan, a file for each part in OUT.parts, and how they become OUT.

A plan depends on the inputs alone, so every process that scores a part makes the same one.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from rerank.data.trec import write_run
from rerank.data.types import Run
from rerank.utils.errors import UserError
from rerank.utils.files import atomic_write, short_hash
from rerank.utils.integrity import BLOCK, as_record, changes, facts_of
from rerank.utils.json_files import parse_json, read_json
from rerank.utils.progress import log
from rerank.utils.temporary import temporary_place

MOST_PARTS = 100
"""By default a command that ends early loses one hundredth of its work at most, …"""
LEAST_TOKENS = 2**18
"""… or this many tokens: 4 forward passes of a GPU, 64 of a CPU. Smaller parts would leave passes half empty."""
PLAN = "plan.json"


class PartRecord(TypedDict):
    """Written after a part: the hash of its plan, the record of its file, and the device that scored it."""

    plan: str
    file: dict[str, Any]
    device: dict[str, Any]


def parts_folder(out: Path) -> Path:
    """Where the parts of the run `out` are."""
    return out.with_name(f"{out.name}.parts")


def default_parts(tokens: np.ndarray) -> int:
    """The number of parts for queries of so many tokens, (queries,), as candidates and passages."""
    return max(1, min(MOST_PARTS, len(tokens), int(tokens.sum()) // LEAST_TOKENS))


def cut(tokens: np.ndarray, parts: int) -> list[int]:
    """Cuts queries of so many tokens, (queries,), into as many parts as that, of about equal tokens, none empty.

    Part i is the queries bounds[i]:bounds[i + 1] of the (parts + 1) bounds.

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
    """The parts of the run `out` in `folder`; part number n, from 1, is the queries bounds[n - 1]:bounds[n].

    `facts` are what the scores depend on, in JSON's types.
    """

    out: Path
    folder: Path
    facts: dict[str, Any]
    bounds: list[int]

    @property
    def count(self) -> int:
        """The number of parts."""
        return len(self.bounds) - 1

    @cached_property
    def plan(self) -> str:
        """The hash of what the scores depend on, the cut among it."""
        return short_hash(json.dumps(self.facts, sort_keys=True), *self.bounds)

    def queries(self, number: int) -> slice:
        """The queries of a part, among those of the run."""
        return slice(self.bounds[number - 1], self.bounds[number])

    def file(self, number: int) -> Path:
        """The run of a part."""
        return self.folder / f"{number:05}.run"

    def open(self) -> None:
        """Writes the plan, or raises UserError, which names what differs, if the folder has parts of another plan."""
        file = self.folder / PLAN
        if self.folder.exists() and not file.exists() and any(self.folder.glob("[!.]*")):
            raise UserError(
                f"{self.folder}: is not a folder of parts: it has no {PLAN}; remove it, or take another --out"
            )
        mine = {**self.facts, "parts": self.count, "plan": self.plan}
        if not file.exists():
            with atomic_write(file) as tmp:
                tmp.write_text(json.dumps(mine, indent=1), encoding="utf-8")
            return
        theirs = read_json(file, dict[str, Any], f"remove {self.folder} to score all parts again")
        if theirs.get("plan") != self.plan:
            differing = [key for key in mine if key != "plan" and theirs.get(key) != mine[key]] or ["cut"]
            shown = ", ".join(f"{key} (there {theirs.get(key)}, here {mine.get(key)})" for key in differing)
            raise UserError(
                f"{self.folder}: has parts of another run, which differs in {shown}; remove the folder to score "
                "anew, or take another --out"
            )

    def record(self, number: int) -> PartRecord | None:
        """The record of a part that is there and is what was written; None for any other."""
        try:
            record: PartRecord = parse_json(self._record(number).read_bytes(), PartRecord)
            files = as_record(record["file"])
        except FileNotFoundError:
            return None
        except ValueError as error:
            log.info(f"{self._record(number)}: {error}; the part is scored again")
            return None
        if record["plan"] != self.plan:
            log.info(f"{self.file(number)}: is of another plan, so it is scored again")
            return None
        for change in changes(self.folder, files):
            log.info(f"{self.folder}: {change}; the part is scored again")
            return None
        return record

    def missing(self) -> list[int]:
        """The numbers of the parts that are not there."""
        return [number for number in range(1, self.count + 1) if self.record(number) is None]

    def write(self, number: int, run: Run, tag: str, device: dict[str, Any]) -> None:
        """Writes a part and, last, its record."""
        file = self.file(number)
        write_run(file, run, tag)
        record: PartRecord = {"plan": self.plan, "file": {file.name: facts_of(file)}, "device": device}
        with atomic_write(self._record(number)) as tmp:
            tmp.write_text(json.dumps(record), encoding="utf-8")

    def join(self) -> dict[str, Any] | None:
        """Writes the run from its parts and returns the facts of the devices, of which one that differs is a list.

        None if a part is not there, as when a command beside this one has joined them. Raises UserError if the parts
        were scored in different precisions.
        """
        records = [self.record(number) for number in range(1, self.count + 1)]
        devices = [record["device"] for record in records if record is not None]
        if len(devices) < self.count:
            return None
        for key in ("precision", "tf32"):
            for number, device in enumerate(devices, 1):
                if device.get(key) != devices[0].get(key):
                    raise UserError(
                        f"{self.folder}: part 1 was scored with {key} {devices[0].get(key)}, part {number} with "
                        f"{device.get(key)}; remove the files of one kind and score them again on the other's device"
                    )
        try:
            with atomic_write(self.out) as tmp, tmp.open("wb") as target:
                packer = zlib.compressobj(9, wbits=31) if self.out.name.endswith(".gz") else None  # without a time
                for number in range(1, self.count + 1):
                    with self.file(number).open("rb") as part:
                        while block := part.read(BLOCK):
                            target.write(packer.compress(block) if packer else block)
                if packer:
                    target.write(packer.flush())
        except FileNotFoundError:
            return None
        return _shared_facts(devices)

    def remove(self) -> None:
        """Removes the parts, at once in the eyes of other processes: a kill leaves all of them, or a leftover."""
        with contextlib.suppress(FileNotFoundError), temporary_place(self.folder) as place:
            os.replace(self.folder, place.new)

    def _record(self, number: int) -> Path:
        return self.folder / f"{number:05}.json"


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as text.

    >>> ranges([1, 2, 3, 7, 9, 10])
    '1-3, 7, 9-10'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def _shared_facts(devices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts of all devices; for one that differs, the list of its values."""
    facts = {}
    for key in devices[0]:
        values: list[Any] = []
        for device in devices:
            if device.get(key) not in values:
                values.append(device.get(key))
        facts[key] = values[0] if len(values) == 1 else values
    return facts
