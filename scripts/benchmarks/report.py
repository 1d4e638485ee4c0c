"""The report of a benchmark: a text table, and JSON with all measurements."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from rerank.evaluation.tables.table import aligned
from rerank.training.device import device_name
from rerank.utils.errors import UserError
from rerank.utils.files import STANDARD_OUTPUT, atomic_write, check_output, output_target


def check(rounds: int, out: Path | None) -> None:
    """Raises UserError, before anything is measured, for fewer than one round or a file that cannot be written."""
    if rounds < 1:
        raise UserError(f"--rounds: got {rounds}, expected 1 or more")
    if out is not None:
        check_output(out)
        if output_target(out) != STANDARD_OUTPUT and not out.absolute().parent.is_dir():
            raise UserError(f"--out {out}: expected the name of a file in an existing folder")


def publish(
    title: str,
    rows: Sequence[dict[str, Any]],
    columns: dict[str, str],
    settings: dict[str, Any],
    device: torch.device,
    notes: Sequence[str] = (),
    out: Path | None = None,
) -> str:
    """Returns the table of `rows` as text; also writes everything to `out` as JSON, if given.

    `columns` are the keys of `rows` to show, with their formats (such as ".2f"); columns without any value are left
    out. Strings are shown unchanged; None and missing values are empty cells.
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
    visible = {key: form for key, form in columns.items() if any(row.get(key) is not None for row in rows)}
    body = [[_cell(row.get(key), form) for key, form in visible.items()] for row in rows]
    head = f"{title}. {facts['machine']}, {facts['threads']} threads, torch {facts['torch']}, {facts['date'][:10]}"
    return "\n\n".join([head, aligned([list(visible), *body]), "\n".join(notes)]).rstrip() + "\n"


def _cell(value: Any, form: str) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else format(value, form)
