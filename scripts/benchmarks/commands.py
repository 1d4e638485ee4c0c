"""The command line of the benchmarks: one function per subcommand, which imports its module when it is called."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from scripts.command_line import open_app, run_app

Encoder = Annotated[
    str,
    Parameter(
        help="minilm (default on a CPU) or bert-base (on a GPU), both with random weights; or a folder, or a name on "
        "the hub."
    ),
]
Rounds = Annotated[int, Parameter(help="Every contestant is measured once per round, in turns; the median counts.")]
Out = Annotated[Path | None, Parameter(help="The JSON file to write.")]
DocumentCounts = Annotated[tuple[int, ...], Parameter(consume_multiple=True, negative=())]

benchmarks = open_app(
    "python -m scripts.benchmarks",
    "Measures rerank on this machine, side by side with other libraries.",
)


@benchmarks.command
def training(*, encoder: Encoder = "", rounds: Rounds = 3, lists: int | None = None, out: Out = None) -> None:
    """Documents per second in training: rerank and a plain CEDR-style loop.

    Parameters
    ----------
    lists
        Training lists of four documents per round; by default 16 on a CPU and 128 on a GPU.
    """
    from scripts.benchmarks.training import bench_training

    print(bench_training(encoder, rounds, lists, out))


@benchmarks.command
def scoring(*, encoder: Encoder = "", rounds: Rounds = 3, documents: int | None = None, out: Out = None) -> None:
    """Documents scored per second: rerank and sentence_transformers.CrossEncoder.

    Parameters
    ----------
    documents
        Documents to score per round; by default 512 on a CPU and 8,192 on a GPU.
    """
    from scripts.benchmarks.scoring import bench_scoring

    print(bench_scoring(encoder, rounds, documents, out))


@benchmarks.command
def exports(*, encoder: Encoder = "", rounds: Rounds = 3, documents: int = 64, out: Out = None) -> None:
    """Documents scored per CPU second: rerank and the graphs that `rerank export` writes.

    Parameters
    ----------
    documents
        Documents to score per round, of one passage each.
    """
    from scripts.benchmarks.exports import bench_exports

    print(bench_exports(encoder, rounds, documents, out))


@benchmarks.command
def losses(*, lists: int = 128, documents: DocumentCounts = (147, 1251), rounds: Rounds = 3, out: Out = None) -> None:
    """Milliseconds and memory of every loss, forward and backward, and of SmoothI with an autograd graph.

    Parameters
    ----------
    lists
        Lists of a batch.
    documents
        Documents of a list; one table for each number.
    """
    from scripts.benchmarks.losses import bench_losses

    print(bench_losses(rounds, lists, documents, out))


@benchmarks.command
def search(
    *collections: str,
    encoder: str,
    documents: int = 20_000,
    queries: int = 200,
    folder: Path = Path("search-benchmark"),
    precision: Literal["auto", "float32", "bf16"] = "auto",
    out: Out = None,
) -> None:
    """Milliseconds of a query to a pipeline, stage by stage and behind `rerank serve`, alone and at eight clients.

    Parameters
    ----------
    collections
        Collections whose documents are copied, with other words in them, and whose queries are asked.
    encoder
        The bi-encoder of the pipeline, which encodes the originals only.
    documents
        Documents to search.
    queries
        Queries that are measured, after 60 that are not.
    folder
        Where the documents, the index and the vectors are kept for the next time.
    precision
        That of the cross-encoder.
    """
    from scripts.benchmarks.search import bench_search

    print(bench_search(collections, encoder, documents, queries, folder, precision, out))


@benchmarks.command
def gpu_counts(
    *workloads: Literal["step", "list150", "score"],
    encoder: Literal["bert-base", "minilm"] = "bert-base",
    layers: int = 12,
    precision: Literal["bf16", "fp16", "no"] = "bf16",
    out: Out = None,
) -> None:
    """Kernel launches, bytes, copies and synchronisations of a GPU, counted without one (Linux, a C++ compiler).

    Parameters
    ----------
    workloads
        step (8 lists of 4 documents), list150 (a list of 150) and score (a chunk of 65,536 tokens); by default all.
    layers
        Layers of the encoder.
    precision
        The type of matrix products.
    """
    from scripts.benchmarks.gpu_counts import WORKLOADS, bench_gpu_counts

    print(bench_gpu_counts(workloads or WORKLOADS, encoder, layers, precision, out))


@benchmarks.command
def serving_load(
    *,
    encoder: Annotated[str, Parameter(help="A small BERT by default; or as above.")] = "",
    seconds: float = 60,
    clients: int = 64,
    out: Out = None,
) -> None:
    """Load on `rerank serve`: each score is compared with Reranker.score, and the server's memory is watched.

    Parameters
    ----------
    seconds
        Seconds for which the clients ask.
    clients
        Clients that ask at once, requests of 1 to 20 documents of 0 to 1,500 words.
    """
    from scripts.benchmarks.serving_load import serving_load

    print(serving_load(encoder, seconds, clients, out))


main = partial(run_app, benchmarks)
