"""The mean of differences on several collections: against numbers computed by hand."""

import pytest

from rerank.data.trec import write_qrels, write_run
from scripts.paper.mean_difference import compare


def test_the_mean_takes_the_errors_of_the_collections(tmp_path):
    folders = []
    for name, wins in (("one", [1, 0, 0, 1]), ("two", [1, 1, 0, 1])):
        folder = tmp_path / name
        folder.mkdir()
        qrels = {f"q{number}": {"good": 1} for number in range(4)}
        write_qrels(folder / "qrels.txt", qrels)
        write_run(folder / "first.run", {q: {"good": 2.0, "bad": 1.0} for q in qrels}, "first")
        second = {f"q{n}": {"good": 0.0, "bad": 1.0} if win else {"good": 2.0} for n, win in enumerate(wins)}
        write_run(folder / "second.run", second, "second")
        folders.append(folder)
    *rows, mean = compare("first.run", "second.run", folders, "P@1").splitlines()
    assert [row.split()[:2] for row in rows] == [["one", "+0.5000"], ["two", "+0.7500"]]
    # Squared errors of (1, 0, 0, 1) and (1, 1, 0, 1): 1/12 and 1/16; of the mean half the root of their sum.
    error = (1 / 12 + 1 / 16) ** 0.5 / 2
    assert mean.split()[1] == "+0.6250"
    assert mean.split()[2].strip("[,") == f"{0.625 - 1.959964 * error:+.4f}"
    assert float(mean.split()[-1]) == pytest.approx(0.0011, abs=1e-4)
