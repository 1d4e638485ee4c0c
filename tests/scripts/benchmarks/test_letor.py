"""`python -m scripts.benchmarks letor` on a few rows: the right rows in table and JSON. No time is asserted."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rerank.data.letor.layouts import open_fold
from scripts.benchmarks import letor
from scripts.benchmarks.commands import main
from tests.support.small_collection import failed


def test_the_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(letor, "ProcessPoolExecutor", lambda workers, mp_context: ThreadPoolExecutor(workers))
    monkeypatch.setattr(letor, "BASELINE_ROWS", 500)
    out = tmp_path / "letor.json"
    main(["letor", "--rows", "600", "--out", str(out)])
    table, kept = capsys.readouterr().out, json.loads(out.read_text())
    names = ["first reading", "opened again", letor.BASELINE]
    assert [(row["what"], row["rows"]) for row in kept["rows"]] == list(zip(names, [600, 600, 500], strict=True))
    for row in kept["rows"]:
        assert row["what"] in table
        assert row["seconds"] > 0
    assert kept["settings"]["bytes"] > 600 * 1000


def test_the_file_is_one_that_we_read(tmp_path):
    letor.write_rows(tmp_path / "all.txt", 601)
    fold = open_fold(str(tmp_path / "all.txt"), "1", 5, tmp_path / "cache")
    assert fold.train.features.shape == (601, 136)
    sizes = np.concatenate([part.stops - part.starts for part in (fold.train, fold.valid, fold.test)])
    assert sorted(sizes.tolist()) == [1, 120, 120, 120, 120, 120]


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--rows", "599"], "--rows: got 599, expected 600 or more"), (["--out", "."], "--out .: is a folder")],
)
def test_what_cannot_be_measured(capsys, words, expected):
    assert expected in failed(capsys, "letor", *words, main=main)
