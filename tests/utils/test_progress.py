"""Progress without a terminal: plain lines, now and then."""

from rerank.utils import progress as module
from rerank.utils.progress import progress


def test_it_hands_on_every_item_and_prints_plain_lines(capsys, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    assert list(progress(range(4), 4, "counting", lambda: "loss 0.5")) == [0, 1, 2, 3]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["counting: 1/4", "counting: 2/4", "counting: 3/4"]
    assert all("s left loss 0.5" in line for line in lines)


def test_quick_work_and_silent_processes_print_nothing(capsys, monkeypatch):
    assert list(progress(range(4), 4, "counting")) == [0, 1, 2, 3]
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    assert list(progress(range(4), 4, "counting", show=False)) == [0, 1, 2, 3]
    assert capsys.readouterr().err == ""
