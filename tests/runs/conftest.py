"""What the tests of folders of runs share with those of reports."""

from tests.reports.conftest import folder, results, written

__all__ = ["folder", "results", "written"]
