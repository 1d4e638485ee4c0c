"""`rerank sweep`: trains a grid of settings in parallel."""

import sys
from typing import Annotated

from cyclopts import Parameter

from rerank.config.files import SWEEPS, check_file, config_file, config_names
from rerank.utils.cluster import LOCAL, Engine
from rerank.utils.parameters import FilePath, OptionalPath, Whole, at_least

GRID = (
    "A TOML file with `config`, `fold`, and [[grid]] tables of settings and values; or a grid of the published "
    f"results: {config_names(SWEEPS)}."
)
"""The help of the argument `grid`."""


def sweep(
    grid: Annotated[FilePath, Parameter(help=GRID)],
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    config: Annotated[OptionalPath, Parameter(metavar="FILE")] = None,
    fold: str = "",
    workers: Annotated[Whole | None, at_least(1)] = None,
    on: Engine = LOCAL,
) -> None:
    """Trains every combination of a grid of settings in parallel.

    Parameters
    ----------
    settings
        Flags of `rerank train` for all cells, such as --collection DIR --epochs 5.
    config
        The settings that the grid varies, a file or a name as for `rerank train`; default: the `config` of the grid.
    fold
        The test fold, or all; default: the grid's.
    workers
        Processes that train at the same time; default: one per GPU, or one per core if there is none.
    on
        Where they train: local, or on a Ray cluster: ray (of this machine, or RAY_ADDRESS), ray://HOST:10001.
    """
    grid = config_file(grid, SWEEPS)
    check_file("grid", grid)
    from rerank.experiments.sweep import run_sweep

    base = config_file(config) if config else None
    sys.exit(0 if run_sweep(grid, settings, base, fold, workers, on) else 1)
