"""The command line: one subcommand = one function, which imports its module only when it is called."""

import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import App, Parameter

from rerank.cli.eval import evaluate
from rerank.config import Config, Whole
from rerank.errors import UserError
from rerank.runs.settings import read_toml
from rerank.utils.progress import log_to_terminal

app = App(
    name="rerank",
    help="Makes a better ranking: fine-tunes an encoder with a loss that is the metric.\n\n"
    "retrieve, pretrain, train, score and doctor also take --config F, a TOML file with the same keys; flags win.",
    help_format="plaintext",
    help_on_error=False,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)


@app.command
def demo(folder: Path = Path("runs/demo")) -> None:
    """The whole pipeline on a generated collection: BM25, training with two losses, the table. No network.

    Parameters
    ----------
    folder
        Where the collection, the small encoder and the runs are written.
    """
    from rerank.cli.demo import run_demo

    run_demo(folder)


@app.command
def retrieve(*, config: Config = Config()) -> None:
    """Retrieves the candidates by BM25 into runs/<collection>/bm25.run."""
    from rerank.experiments.text import open_text

    dataset = open_text(config)
    dataset.write_references()
    print(dataset.first_stage)


@app.command
def train(*, fold: str = "all", config: Config = Config()) -> None:
    """Fine-tunes an encoder, or a network of feature vectors, on the folds and writes the runs of its test queries.

    Parameters
    ----------
    fold
        The fold that tests: 1 to 5, or all.
    """
    from rerank.experiments.train import train_folds

    print(train_folds(config, fold).path)


@app.command
def pretrain(*, out: Path, config: Config = Config()) -> None:
    """Teaches an encoder to rank from the collection's documents alone: no query, no judgment.

    Parameters
    ----------
    out
        The folder to write: an ordinary --encoder, and a checkpoint that `rerank score` takes as it is.
    """
    from rerank.experiments.pretraining.pretrain import pretrain_into

    print(pretrain_into(config, out))


@app.command
def sweep(
    grid: Path,
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    config: Path | None = None,
    fold: str = "",
    workers: Whole | None = None,
) -> None:
    """Trains every cell of a grid of settings in parallel; finished cells are not trained again.

    Parameters
    ----------
    grid
        A TOML file such as configs/sweeps/letor.toml: `config`, `fold`, and [[grid]] tables of settings and values.
    settings
        Flags of `rerank train`, which hold for all cells: --collection DIR --epochs 5.
    config
        The TOML file below the grid, in place of the one that the grid names.
    fold
        The fold that tests, or all; the grid's where none is given.
    workers
        Processes that train at the same time: one a core where none are given, one where there is a GPU.
    """
    from rerank.experiments.sweep.run import run_sweep

    sys.exit(0 if run_sweep(grid, settings, config, fold, workers) else 1)


@app.command
def score(checkpoint: str, run: Path, *, out: Path, config: Config = Config()) -> None:
    """Re-ranks a run with a trained model (a checkpoint folder) or a cross-encoder of the hub.

    Parameters
    ----------
    checkpoint
        runs/<collection>/<experiment>/fold1/checkpoint, or any Hugging Face cross-encoder.
    run
        The TREC run to re-rank, to --first-stage.depth.
    out
        The TREC run to write.
    """
    from rerank.experiments.rescore import rescore

    print(rescore(config, checkpoint, run, out, config.collection.source))


@app.command
def doctor(*, config: Config = Config()) -> None:
    """Says what is ready on this machine and what is not: Java, collection, index, encoder, GPU, disk."""
    from rerank.cli.doctor import examine

    sys.exit(0 if examine(config) else 1)


app.command(evaluate, name="eval")


@app.command
def verify(folder: Path) -> None:
    """Says whether the numbers of finished runs still hold: files, hashes, settings, values. Exit code 1: not all.

    Parameters
    ----------
    folder
        runs/<collection>, an experiment's folder in it, or a fold's.
    """
    from rerank.runs.verify import verify

    table, holds = verify(folder)
    print(table, end="")
    sys.stdout.flush()
    sys.exit(0 if holds else 1)


@app.command
def report(folder: Path, *, out: Path | None = None, measure: str = "nDCG@20") -> None:
    """Writes one HTML page about the experiments of a collection: tables, charts, topics, settings. No network.

    Parameters
    ----------
    folder
        runs/<collection>, or one experiment's folder in it.
    out
        The file to write; report.html in the folder where none is given.
    measure
        What charts and topics show, such as nDCG@20 or map.
    """
    from rerank.reports.html.page import write_report

    print(write_report(folder, out, measure))


@app.command
def plot(chart: str, folder: Path, *, out: Path, measure: str = "nDCG@20") -> None:
    """Writes a chart of the report as a file for a paper.

    Parameters
    ----------
    chart
        depth or judged, of a collection; learning, gain, scores, reliability or length, of one experiment.
    folder
        runs/<collection>, or one experiment's folder in it.
    out
        The file to write; its name ends in .pdf, .svg or .png.
    measure
        What the chart shows, such as nDCG@20 or map.
    """
    from rerank.reports.charts.plot import plot

    print(plot(chart, folder, out, measure))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)

    def call() -> None:
        app.config = [] if words[:1] == ["sweep"] else _config_file(words)  # whose --config is one of its own flags
        app(words, exit_on_error=False, print_error=False)

    run_and_exit(call)


def run_and_exit(call: Callable[[], None]) -> None:
    """Calls a command; a user's mistake is one line on standard error and exit code 2, an interrupt 130."""
    log_to_terminal()
    try:
        call()
        sys.stdout.flush()
    except (UserError, cyclopts.CycloptsError) as error:
        print(f"rerank: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC) or error.filename:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains once more at its end
        if error.errno == errno.ENOSPC:
            print(f"rerank: standard output: {error.strerror}", file=sys.stderr)
        sys.exit(2 if error.errno == errno.ENOSPC else 141)  # 141: as a shell says of who writes to a closed pipe
    except KeyboardInterrupt:
        print(
            "rerank: interrupted; nothing is left half-written, and the same command goes on from here", file=sys.stderr
        )
        sys.exit(130)


def _config_file(words: list[str]) -> list[cyclopts.config.Dict]:
    """Takes `--config F` out of the words, wherever it stands."""
    for place, word in enumerate(words):
        if word == "--config" or word.startswith("--config="):
            path = word.partition("=")[2] if "=" in word else (words[place + 1] if place + 1 < len(words) else "")
            tables = read_toml(Path(path), "--config ")
            del words[place : place + (1 if "=" in word else 2)]
            # Below the name of every command, or else cyclopts drops [pretraining], which is named like a command.
            return [cyclopts.config.Dict(dict.fromkeys(app, tables), source=str(Path(path).absolute()))]
    return []
