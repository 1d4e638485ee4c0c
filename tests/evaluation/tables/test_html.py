"""Tables in a notebook."""

from xml.etree import ElementTree

from rerank import compare
from rerank.evaluation.tables.html import as_html
from rerank.evaluation.tables.table import Cell, Table, cells


def test_every_part_of_a_table_is_shown_and_escaped():
    block = [cells(["run", "AP"]), [Cell("<ours>"), Cell("0.5", best=True)], [Cell("a & b"), Cell("0.4", mark="†")]]
    html = as_html(Table("Mean < 1", [block], ["{best}: best"], ["a note"]))
    root = ElementTree.fromstring(html)
    assert [[*map("".join, (cell.itertext() for cell in row))] for row in root.iter("tr")] == [
        ["run", "AP"],
        ["<ours>", "0.5"],
        ["a & b", "0.4†"],
    ]
    assert [bold.text for bold in root.iter("b")] == ["0.5"]
    assert [line.text for line in root.iter("p")] == ["Mean < 1", "bold: best", "a note"]


def test_a_comparison_shows_the_numbers_of_its_text():
    qrels = {"q1": {"d1": 1}, "q2": {"d3": 1}}
    bm25 = {"q1": {"d1": 1.0, "d2": 2.0}, "q2": {"d3": 2.0, "d4": 1.0}}
    ours = {"q1": {"d1": 2.0, "d2": 1.0}, "q2": {"d3": 2.0, "d4": 1.0}}
    comparison = compare({"bm25": bm25, "ours": ours}, qrels, ["AP", "P@1"])
    root = ElementTree.fromstring(comparison._repr_html_())
    values = ["".join(cell.itertext()) for cell in root.iter("td")]
    assert len(values) == 4
    assert all(value in str(comparison) for value in values)
