"""`rerank verify`: checks finished runs against their manifests."""

import sys

from rerank.utils.parameters import FilePath


def verify(folder: FilePath) -> None:
    """Verifies finished runs against their manifests.

    Parameters
    ----------
    folder
        runs/<collection>, or the folder of an experiment or of a fold in it; or of a fitted pipeline.
    """
    from rerank.pipelines.folder import is_pipeline

    if is_pipeline(folder):
        from rerank.pipelines.evidence import verify_pipeline

        table, holds = verify_pipeline(folder)
    else:
        from rerank.experiments.runs.verify import verify

        table, holds = verify(folder)
    print(table, end="")
    sys.stdout.flush()
    sys.exit(0 if holds else 1)
