"""What each stage of the cascades whose runs are in the collection's folder cost and gained."""

from rerank.reports.html.parts import Missing, Rows
from rerank.runs.cascade_table import cascade_rows
from rerank.runs.layout import CollectionFolder
from rerank.runs.manifest import read_manifest
from rerank.utils.errors import UserError


def cascade_tables(folder: CollectionFolder) -> list[Rows | Missing]:
    """A table per run that `rerank score --then` wrote in the folder, by name; other runs have none."""
    tables: list[Rows | Missing] = []
    for file in folder.run_manifests:
        try:
            cascade = read_manifest(file).get("cascade")
        except UserError as error:
            tables.append(Missing(str(error)))
            continue
        if cascade:
            head, *rows = cascade_rows(cascade["stages"])
            over = f"means over {cascade['judged']} judged queries" if cascade["judged"] else "no query is judged"
            tables.append(Rows(head, rows, f"{file.name.removesuffix('.json')}: {over}."))
    return tables
