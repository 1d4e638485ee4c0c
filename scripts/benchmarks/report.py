"""The flags that benchmarks have in common, and their report: a text table, and JSON with all measurements."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import torch
from cyclopts import Parameter
from cyclopts.validators import Number

from rerank.evaluation.tables import aligned
from rerank.training.device import device_name
from rerank.utils.files import atomic_write, check_output


def _check_out(_: object, out: Path | None) -> None:
    """Raises UserError, before anything is measured, for a file that cannot be written."""
    if out is not None:
        check_output(out)


Encoder = Annotated[
    str,
    Parameter(
        help="minilm (default on a CPU) or bert-base (on a GPU), both with random weights; or a folder, or a name on "
        "the hub."
    ),
]
Count = Annotated[int, Parameter(validator=Number(gte=1))]
Rounds = Annotated[
    int,
    Parameter(
        help="Every contestant is measured once per round, in turns; the median counts.", validator=Number(gte=1)
    ),
]
CpuSeconds = Annotated[
    bool,
    Parameter(
        help="Count the seconds that threads have a processor, for a machine with other jobs; set OMP_NUM_THREADS=1."
    ),
]
Out = Annotated[Path | None, Parameter(help="The JSON file to write.", validator=_check_out)]


def publish(
    title: str,
    rows: Sequence[dict[str, Any]],
    columns: dict[str, str],
    settings: dict[str, Any],
    device: torch.device,
    notes: Sequence[str] = (),
    out: Path | None = None,
) -> None:
    """Prints the table of `rows`; also writes everything to `out` as JSON, if given.

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
    print("\n\n".join([head, aligned([list(visible), *body]), "\n".join(notes)]).rstrip())


def _cell(value: Any, form: str) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else format(value, form)
