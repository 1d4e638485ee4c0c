"""The command line of the benchmarks: one function a subcommand, which imports its module when it is called."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from rerank.cli.main import run_and_exit

bench = App(
    name="python -m scripts.benchmarks",
    help="Measures what this machine reaches, and what others reach on it in the same run.",
    help_format="plaintext",
    help_on_error=False,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)


@bench.command(name="training")
def bench_training(*, encoder: str = "", rounds: int = 3, lists: int | None = None, out: Path | None = None) -> None:
    """Training documents a second: rerank and a plain CEDR-style loop.

    Parameters
    ----------
    encoder
        minilm (default on a CPU), bert-base (on a GPU), both with random weights; or a folder or a name on the hub.
    rounds
        Everything is measured once a round, in turns; the median counts.
    lists
        Lists of four documents that are trained on a round; 16 on a CPU and 128 on a GPU where none are given.
    out
        The JSON file to write.
    """
    from scripts.benchmarks.training import bench_training

    print(bench_training(encoder, rounds, lists, out))


@bench.command(name="scoring")
def bench_scoring(*, encoder: str = "", rounds: int = 3, documents: int | None = None, out: Path | None = None) -> None:
    """Documents scored a second: rerank and sentence_transformers.CrossEncoder.

    Parameters
    ----------
    encoder
        minilm (default on a CPU), bert-base (on a GPU), both with random weights; or a folder or a name on the hub.
    rounds
        Everything is measured once a round, in turns; the median counts.
    documents
        Documents that are scored a round; 512 on a CPU and 8,192 on a GPU where none are given.
    out
        The JSON file to write.
    """
    from scripts.benchmarks.scoring import bench_scoring

    print(bench_scoring(encoder, rounds, documents, out))


@bench.command(name="losses")
def bench_losses(
    *,
    lists: int = 128,
    documents: Annotated[tuple[int, ...], Parameter(consume_multiple=True, negative=())] = (147, 1251),
    rounds: int = 3,
    out: Path | None = None,
) -> None:
    """Milliseconds and memory of every loss, forward and backward, and of SmoothI with an autograd graph.

    Parameters
    ----------
    lists
        Lists of a batch.
    documents
        Documents of a list; a table for each number.
    rounds
        Everything is measured once a round, in turns; the median counts.
    out
        The JSON file to write.
    """
    from scripts.benchmarks.losses import bench_losses

    print(bench_losses(rounds, lists, documents, out))


@bench.command(name="letor")
def bench_letor(*, rows: int = 200_000, out: Path | None = None) -> None:
    """Seconds and memory to read a feature file of MSLR-WEB30K's shape, first and again; and scikit-learn's.

    Parameters
    ----------
    rows
        Documents of the file, which is written to the folder for temporary files; WEB30K has 3,771,125 (4.6 GB).
    out
        The JSON file to write.
    """
    from scripts.benchmarks.letor import bench_letor

    print(bench_letor(rows, out))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line of the benchmarks."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    run_and_exit(lambda: bench(words, exit_on_error=False, print_error=False))
