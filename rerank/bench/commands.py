"""The command line of the benchmarks: one subcommand = one function, which imports its room only when it is called."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

bench = App(name="bench", help="Measures what this machine reaches, and what others reach on it in the same run.")


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
    from rerank.bench.training import bench_training

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
    from rerank.bench.scoring import bench_scoring

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
    from rerank.bench.losses import bench_losses

    print(bench_losses(rounds, lists, documents, out))
