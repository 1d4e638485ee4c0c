"""What the tables show, for other programs: CSV and JSON, every number as it is."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rerank.evaluation.compare import Compared
from rerank.types import Measurements

PER_QUERY = ("query_id", "fold", "run", "measure", "value")


def comparison_records(compared: dict[str, list[Compared]]) -> list[dict[str, Any]]:
    """A record for each run and measure, with the fields of `Compared`; what is not known is None."""
    rows = [asdict(row) for of_measure in compared.values() for row in of_measure]
    return [{key: None if value != value else value for key, value in row.items()} for row in rows]


def per_query_records(rows: dict[str, Measurements], fold_of: dict[str, str]) -> list[dict[str, Any]]:
    """A record for each query, run and measure; the fold is None where it is not known."""
    return [
        dict(zip(PER_QUERY, (query_id, fold_of.get(query_id), run, measure, value), strict=True))
        for run, measures in rows.items()
        for measure, values in measures.items()
        for query_id, value in values.items()
    ]


def as_csv(records: Sequence[dict[str, Any]]) -> str:
    """A header line and a line for each record; None is an empty field."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def as_json(name: str, records: Sequence[dict[str, Any]], **facts: Any) -> str:
    """An object that has the records under `name`, and `facts` on how they came about."""
    return json.dumps({**facts, name: list(records)}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
