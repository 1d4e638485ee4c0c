"""`rerank verify`: checks finished runs against their manifests."""

import sys

from rerank.utils.parameters import FilePath


def verify(folder: FilePath) -> None:
    """Verifies finished runs against their manifests.

    Parameters
    ----------
    folder
        runs/<collection>, with its experiments and pipelines; the folder of one of these, or of a fold.
    """
    from rerank.pipelines.verify import verify_folder

    table, holds = verify_folder(folder)
    print(table, end="")
    sys.stdout.flush()
    sys.exit(0 if holds else 1)
