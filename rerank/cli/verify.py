"""`rerank verify`: finished runs, checked against their manifests."""

import sys

from rerank.utils.parameters import FilePath


def verify(folder: FilePath) -> None:
    """Verifies finished runs against their manifests.

    Parameters
    ----------
    folder
        runs/<collection>, the folder of an experiment in it, or of a fold; or the folder of a fitted pipeline.
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
