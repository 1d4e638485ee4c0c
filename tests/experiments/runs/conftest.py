"""What the tests of folders of runs share with those of reports."""

from tests.experiments.report.conftest import folder, results, written

__all__ = ["folder", "results", "written"]
