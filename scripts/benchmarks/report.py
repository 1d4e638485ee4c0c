"""The outcome of a benchmark: a table for people, and JSON with everything that was measured."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from rerank.errors import UserError
from rerank.evaluation.tables.table import aligned
from rerank.training.device import device_name
from rerank.utils.files import atomic_write


def check(rounds: int, out: Path | None) -> None:
    """Raises UserError, before anything is measured, for no rounds or a file that cannot be written."""
    if rounds < 1:
        raise UserError(f"--rounds: got {rounds}, expected 1 or more")
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise UserError(f"--out {out}: expected the name of a file in a folder that is there")


def publish(
    title: str,
    rows: Sequence[dict[str, Any]],
    columns: dict[str, str],
    settings: dict[str, Any],
    device: torch.device,
    notes: Sequence[str] = (),
    out: Path | None = None,
) -> str:
    """The table of `rows` as text; with `out`, everything is written there as JSON too.

    `columns` are the keys of `rows` that are shown, with the format of each (such as ".2f"); one whose rows all lack it
    is left out. A value that is a text is shown as it is, one that is None or lacking as nothing.
    """
    facts: dict[str, Any] = {
        "machine": device_name(device),
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    if out is not None:
        with atomic_write(out) as tmp:
            everything = {"benchmark": title, **facts, "settings": settings, "rows": list(rows), "notes": list(notes)}
            tmp.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    shown = {key: form for key, form in columns.items() if any(row.get(key) is not None for row in rows)}
    body = [[_cell(row.get(key), form) for key, form in shown.items()] for row in rows]
    head = f"{title}. {facts['machine']}, {facts['threads']} threads, torch {facts['torch']}, {facts['date'][:10]}"
    return "\n\n".join([head, aligned([list(shown), *body]), "\n".join(notes)]).rstrip() + "\n"


def _cell(value: Any, form: str) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else format(value, form)
