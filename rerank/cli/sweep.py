"""`rerank sweep`: a grid of settings, trained in parallel."""

import sys
from typing import Annotated

from cyclopts import Parameter

from rerank.config.files import check_file
from rerank.utils.cluster.jobs import LOCAL, Engine
from rerank.utils.parameters import FilePath, OptionalPath, Whole, at_least


def sweep(
    grid: FilePath,
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    config: OptionalPath = None,
    fold: str = "",
    workers: Annotated[Whole | None, at_least(1)] = None,
    on: Engine = LOCAL,
) -> None:
    """Trains every combination of a grid of settings in parallel.

    Parameters
    ----------
    grid
        A TOML file such as configs/sweeps/letor.toml: `config`, `fold`, and [[grid]] tables of settings and values.
    settings
        Flags of `rerank train` for all cells, such as --collection DIR --epochs 5.
    config
        The TOML file of settings that the grid varies; default: the one that the grid names.
    fold
        The test fold, or all; default: the grid's.
    workers
        Processes that train at the same time; default: one per GPU, or one per core if there is none.
    on
        Where they train: local, or on a Ray cluster: ray (of this machine, or RAY_ADDRESS), ray://HOST:10001.
    """
    check_file("grid", grid)
    from rerank.jobs.sweep.run import run_sweep

    sys.exit(0 if run_sweep(grid, settings, config, fold, workers, on) else 1)
