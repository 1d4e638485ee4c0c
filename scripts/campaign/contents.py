"""What a command left in a folder, in a form that two runs of the same commands have in common."""

import hashlib
import json
from pathlib import Path
from typing import Any

MEASURED = {"seconds", "peak_memory", "manifest_hash", "files", "commit", "ms", "own_ms"}
"""Keys of manifests and logs that are times, memory, the commit of the checkout, or hashes of files with these."""
INDEX = "index"
"""Lucene names its files anew each time."""


def contents(folder: Path) -> dict[str, str]:
    """The name of each file -> a hash of its content, without times; locks, the index and temporary files are left out.

    The model cards and reports of a folder are as they are: they show no time that is not in a manifest.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or path.suffix == ".lock" or INDEX in parts or parts[-1].startswith("."):
            continue
        found[path.relative_to(folder).as_posix()] = hashlib.sha256(_without_times(path)).hexdigest()
    return found


def differences(expected: dict[str, str], found: dict[str, str], without: set[str]) -> list[str]:
    """A line for each file that is missing, is not expected or has another content; `without` names files to skip."""
    lines = []
    for name in sorted({*expected, *found} - without):
        if name not in found:
            lines.append(f"{name} is missing")
        elif name not in expected:
            lines.append(f"{name} is not expected")
        elif expected[name] != found[name]:
            lines.append(f"{name} differs")
    return lines


def _without_times(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix not in (".json", ".jsonl"):
        return content
    try:
        values = [json.loads(line) for line in (content.splitlines() if path.suffix == ".jsonl" else [content])]
    except ValueError:
        return content
    return json.dumps([_without_measured(value) for value in values]).encode()


def _without_measured(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_measured(inner) for key, inner in value.items() if key not in MEASURED}
    return [_without_measured(inner) for inner in value] if isinstance(value, list) else value
