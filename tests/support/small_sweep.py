"""Finished cells that nobody trained: runs whose value on every fold is known beforehand."""

from pathlib import Path

from rerank.data.folds import make_folds, write_folds
from rerank.data.trec import write_qrels, write_run
from rerank.data.types import Fold

QUERIES = [f"q{number}" for number in range(30)]
DOCUMENTS = 5  # the first is relevant


def write_collection(folder: Path, folds: list[Fold] | None = None) -> list[Fold]:
    """Writes qrels.txt and folds.json, as they lie in runs/<collection>."""
    folds = folds or make_folds(QUERIES, 5)
    write_qrels({q: {f"{q}-{i}": int(i == 0) for i in range(DOCUMENTS)} for q in QUERIES}, folder / "qrels.txt")
    write_folds(folder / "folds.json", folds)
    return folds


def write_cell(
    folder: Path,
    name: str,
    folds: list[Fold],
    valid: list[float],
    test: list[float],
    loss: str = "smoothi",
    seed: int = 0,
    lists: int = 2,
    first_stage_weight: float = 0,
    **settings: object,
) -> None:
    """Writes a cell that ranks the relevant document first for these shares of each fold's queries, else last.

    `lists` is the number of relevant documents of its training lists.
    """
    lines = ["[encoder]", f"first_stage_weight = {first_stage_weight}"]
    lines += ["[lists]", f"relevant = {lists}", "[loss]", f'name = "{loss}"']
    lines += [f"{key} = {value!r}" for key, value in settings.items()]
    (folder / name).mkdir()
    (folder / name / "config.toml").write_text(
        "\n".join([*lines, "[training]", f"seed = {seed}", "lr = 0.0001"]) + "\n"
    )
    for fold, of_valid, of_test in zip(folds, valid, test, strict=False):
        for part, queries, share in (("valid", fold.valid, of_valid), ("test", fold.test, of_test)):
            solved = round(share * len(queries))
            run = {
                query: {f"{query}-{i}": float(-i if number < solved else i) for i in range(DOCUMENTS)}
                for number, query in enumerate(queries)
            }
            write_run(run, folder / name / f"fold{fold.name}" / f"{part}.run", name)
