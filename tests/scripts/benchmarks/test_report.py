"""The table and the JSON of a benchmark."""

import json

import pytest
import torch

from rerank.utils.errors import UserError
from scripts.benchmarks.report import check, publish

CPU = torch.device("cpu")
ROWS = [{"what": "ours", "rate": 1234.5, "seconds": [1.0]}, {"what": "theirs", "rate": "out of memory", "more": 2.0}]


def test_table_and_json_hold_the_same(tmp_path):
    out = tmp_path / "out.json"
    text = publish(
        "Speed", ROWS, {"what": "", "rate": ",.1f", "more": ".2f", "none": ""}, {"a": 1}, CPU, ["A note."], out
    )
    head, _, *lines = text.splitlines()
    assert head.startswith("Speed. ")
    assert lines[:3] == ["what    rate           more", "ours    1,234.5", "theirs  out of memory  2.00"]
    assert lines[-1] == "A note."
    kept = json.loads(out.read_text())
    assert kept["rows"] == ROWS
    assert kept["settings"] == {"a": 1}
    assert kept["torch"] == torch.__version__
    assert kept["threads"] == torch.get_num_threads()
    assert {"machine", "date", "notes"} <= set(kept)


def test_what_cannot_work_is_refused_before_anything_is_measured(tmp_path):
    check(1, tmp_path / "out.json")
    check(1, None)
    with pytest.raises(UserError, match="--rounds: got 0, expected 1 or more"):
        check(0, None)
    for path in (tmp_path, tmp_path / "nowhere" / "out.json"):
        with pytest.raises(UserError, match="expected the name of a file"):
            check(1, path)
