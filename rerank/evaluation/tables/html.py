"""Tables as HTML, for notebooks."""

from collections.abc import Sequence
from html import escape

from rerank.evaluation.tables.table import Cell, Table


def as_html(table: Table) -> str:
    """The table with its title, legend and notes; the best of a column is bold."""
    blocks = "".join(_block(block) for block in table.blocks)
    legend = [line.replace("{best}", "bold") for line in table.legend]
    footer = "".join(f"<p>{escape(line)}</p>" for line in (*legend, *table.notes))
    return f"<div><p>{escape(table.title)}</p>{blocks}{footer}</div>"


def _block(block: Sequence[Sequence[Cell]]) -> str:
    head, *body = block
    names = "".join(f"<th>{escape(cell.text)}</th>" for cell in head)
    rows = "".join(f"<tr><th>{escape(row[0].text)}</th>{''.join(map(_cell, row[1:]))}</tr>" for row in body)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    return f"<td>{f'<b>{text}</b>' if cell.best else text}{escape(cell.mark)}</td>"
