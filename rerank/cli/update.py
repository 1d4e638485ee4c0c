"""`rerank update`: takes the present documents of the collection into a fitted pipeline."""

from pathlib import Path

from rerank.utils.parameters import PathText
from rerank.utils.progress import print_result


def update(folder: PathText) -> None:
    """Takes new, changed and removed documents into a fitted pipeline, without fitting it again.

    Parameters
    ----------
    folder
        A folder that `rerank fit` wrote.
    """
    from rerank.pipelines.folder import update as update_folder

    update_folder(Path(folder))
    print_result(folder)
