"""Groups in processes of their own, as on a GPU: their rows come back, and one that does not end is killed."""

from scripts.gpu_check.groups import run_apart
from scripts.gpu_check.sizes import SMALL, Setting

CPU = Setting("cpu", SMALL)


def test_the_rows_of_a_process_come_back():
    """The row of an error, which needs no torch."""
    (row,) = run_apart("sizes", CPU, 600)
    assert (row.check, row.result) == ("sizes", "FAIL")
    assert "has no attribute 'check'" in row.measured
    assert "Traceback" in row.details


def test_a_process_that_does_not_end_in_time_fails():
    (row,) = run_apart("packing", CPU, 0.1)
    assert (row.check, row.measured, row.result) == ("packing", "not ended", "FAIL")
    (row,) = run_apart("packing", CPU, -1)
    assert (row.measured, row.result) == ("not run: the time of all checks is over", "FAIL")


def test_a_process_that_dies_fails():
    (row,) = run_apart("__main__", Setting("no device", SMALL), 600)  # it ends with exit code 2 before it has rows
    assert (row.measured, row.result) == ("its process ended with exit code 2", "FAIL")
