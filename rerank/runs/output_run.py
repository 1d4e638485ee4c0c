"""What belongs to a run file that a command writes: the last column of its lines, and its manifest."""

from pathlib import Path

from rerank.utils.errors import UserError
from rerank.utils.files import STANDARD_OUTPUT, check_output, output_target


def tag_of(out: Path) -> str:
    """The last column of the run `out`: its name without .run and .gz. Raises UserError if nothing is left."""
    if output_target(out) == STANDARD_OUTPUT:
        return "rerank"
    name = out.name.encode(errors="replace").decode()  # a name need not be UTF-8, a run is
    tag = "-".join(name.removesuffix(".gz").removesuffix(".run").split())
    if not tag:
        raise UserError(f"--out {out}: expected a name before .run, which is the last column of the run")
    return tag


def manifest_of(out: Path) -> Path | None:
    """The manifest of the run `out`; None for standard output. Raises UserError if one of the two cannot be written."""
    check_output(out)
    if output_target(out) == STANDARD_OUTPUT:
        return None
    manifest = out.with_name(f"{out.name}.json")
    check_output(manifest, "--out: its manifest")
    return manifest
