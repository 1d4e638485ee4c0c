import csv
import io
import json

from rerank.data.types import Measurements
from rerank.evaluation.run_comparison import compare_measurements
from rerank.evaluation.tables.records import as_csv, as_json, comparison_records

ROWS: dict[str, Measurements] = {
    "bm25": {"AP": {"a": 0.1, "b": 1 / 3}},
    'hinge, "best"': {"AP": {"a": 0.5, "b": 0.25}},
}


def test_comparisons_keep_every_digit_and_have_no_nan() -> None:
    records = comparison_records(compare_measurements(ROWS, baseline="bm25"))
    facts = json.loads(as_json("comparisons", records, notes=["A note."], test="t"))
    assert facts["notes"] == ["A note."]
    first, second = facts["comparisons"]
    assert (first["mean"], first["p"], first["wins"], first["fold_mean"]) == ((0.1 + 1 / 3) / 2, None, None, None)
    assert (second["run"], second["reference"], second["wins"], second["losses"]) == ('hinge, "best"', "bm25", 1, 1)
    rows = list(csv.DictReader(io.StringIO(as_csv(records))))
    assert [row["run"] for row in rows] == list(ROWS)
    assert float(rows[1]["p"]) == second["p"]
    assert rows[0]["p"] == ""
