"""Comparisons and values as records, CSV and JSON, with every digit."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rerank.data.types import Measurements
from rerank.evaluation.run_comparison import RunComparison

PER_QUERY = ("query_id", "fold", "run", "measure", "value")


def comparison_records(comparisons: dict[str, list[RunComparison]]) -> list[dict[str, Any]]:
    """A record for each run and measure, with the fields of `RunComparison`; NaN becomes None."""
    records = [asdict(row) for rows in comparisons.values() for row in rows]
    return [{key: None if value != value else value for key, value in record.items()} for record in records]


def per_query_records(measurements: dict[str, Measurements], fold_of: Mapping[str, str]) -> list[dict[str, Any]]:
    """A record for each query, run and measure; the fold is None if it is unknown."""
    return [
        dict(zip(PER_QUERY, (query_id, fold_of.get(query_id), run, measure, value), strict=True))
        for run, of_run in measurements.items()
        for measure, values in of_run.items()
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
    """A JSON object with the records under `name`, and the `facts` about them."""
    return json.dumps({**facts, name: list(records)}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
