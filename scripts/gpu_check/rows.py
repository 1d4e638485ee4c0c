"""The rows of the table: what was checked, what was measured, its bound, and whether it holds."""

from collections.abc import Sequence
from dataclasses import dataclass

from rerank.evaluation.tables import Table, cells

HEAD = ("check", "measured", "bound", "result")


@dataclass(frozen=True)
class Row:
    """A line of the table; `passed` is None if nothing bounds the value, or if it could not be measured here."""

    check: str
    measured: str
    bound: str = ""
    passed: bool | None = None
    details: str = ""
    """The traceback of a check that ended with an error."""

    @property
    def result(self) -> str:
        """What the last column says."""
        return {True: "pass", False: "FAIL", None: "-"}[self.passed]


def at_most(check: str, value: float, bound: float | None, form: str = ".1e", unit: str = "") -> Row:
    """A value that passes if it is at most `bound`; NaN fails, and None bounds nothing.

    >>> at_most("scores", 0.003, 0.02).result, at_most("scores", float("nan"), 0.02).result
    ('pass', 'FAIL')
    """
    return _row(check, value, "≤", bound, form, unit)


def at_least(check: str, value: float, bound: float | None, form: str = ".2f", unit: str = "") -> Row:
    """A value that passes if it is at least `bound`."""
    return _row(check, value, "≥", bound, form, unit)


def _row(check: str, value: float, sign: str, bound: float | None, form: str, unit: str) -> Row:
    if bound is None:
        return Row(check, f"{value:{form}}{unit}")
    passed = value <= bound if sign == "≤" else value >= bound
    return Row(check, f"{value:{form}}{unit}", f"{sign} {bound:{form}}{unit}", passed)


def table_of(title: str, rows: Sequence[Row], notes: Sequence[str] = ()) -> Table:
    """The table of these rows, which `rerank.evaluation.tables.render` writes as text or as Markdown."""
    body = [cells([row.check, row.measured, row.bound, row.result]) for row in rows]
    return Table(title, [[cells(HEAD), *body]], notes=notes)
