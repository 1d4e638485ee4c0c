"""The command line: its commands, each in a module that is imported when it is called, and its exit codes."""

import errno
import os
import sys
from collections.abc import Callable, Sequence

import cyclopts
from cyclopts import App, ArgumentCollection

from rerank.cli.interrupts import handled_interrupts
from rerank.utils.errors import UserError
from rerank.utils.progress import log_to_terminal

app = App(
    name="rerank",
    help="Fine-tunes a cross-encoder to re-rank the results of a first-stage retriever such as BM25, directly "
    "optimising a differentiable version of the evaluation metric.",
    help_format="plaintext",
    help_on_error=False,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)

COMMANDS = {
    "demo": "Run the whole pipeline on a small generated collection.\n\n"
    "BM25, training with two losses over five folds, the table; two to four minutes, no network.",
    "doctor": "Check that Java, the collection, the index, the encoder, the GPU and the disk are ready.\n\n"
    "Exit code 1 if something is missing.",
    "retrieve": "Retrieve candidates with BM25 into runs/<collection>/bm25.run.",
    "pretrain": "Pre-train an encoder on pseudo-queries made from the documents.\n\n"
    "Titles, sentences and keywords of a document are queries for it; neither queries nor judgments are read.",
    "train": "Fine-tune an encoder, or a network on feature vectors, and write the runs of the test queries.\n\n"
    "Finished folds are kept; the same command resumes an interrupted one.",
    "sweep": "Train every combination of a grid of settings in parallel.\n\nFinished cells are kept.",
    "distill": "Train an encoder on the scores of a cross-encoder, its teacher.\n\n"
    "The teacher scores the candidates of every query once; what it scored is kept.",
    "score": "Re-rank any run, or BM25's, with a trained model or a cross-encoder of the hub.\n\n"
    "No judgments are needed; --collection.queries gives new queries.",
    "push": "Upload a checkpoint to huggingface.co.\n\n--dry-run shows the files.",
    "eval": "Evaluate and compare runs: means, standard errors, significance tests.",
    "verify": "Verify finished runs against their manifests: files, hashes, settings, values.\n\n"
    "Exit code 1 if something differs.",
    "report": "Write an HTML page about the experiments of a collection: tables, charts, queries, settings.",
    "plot": "Write a chart of the report as a PDF, SVG or PNG file.",
}
"""The help of each command, in the order of the data flow; the first sentence is its line in `rerank --help`."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FUNCTIONS = {"eval": "evaluate"}
WITH_SETTINGS = ("doctor", "retrieve", "pretrain", "train", "distill", "score")


def _read_config_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    from rerank.cli.settings import read_config_file

    read_config_file(app, commands, arguments)


for position, (command, text) in enumerate(COMMANDS.items()):
    app.command(
        f"rerank.cli.{command}:{FUNCTIONS.get(command, command)}",
        name=command,
        help=text,
        sort_key=position,
        config=[_read_config_file] if command in WITH_SETTINGS else [],
    )
app.command(
    "rerank.cli.completion:install_completion",
    name="--install-completion",
    help="Install completion of commands and flags for bash, zsh or fish.",
)
app["--help"].sort_key = app["--version"].sort_key = len(COMMANDS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    run_and_exit(lambda: app(words, exit_on_error=False, print_error=False))


def run_and_exit(call: Callable[[], object]) -> None:
    """Calls a command; a user error, or a file that the system refuses, is one line on standard error and exit code 2.

    Ctrl-C, SIGTERM and SIGHUP are one line too, and exit codes 130, 143 and 129.
    """
    log_to_terminal()
    with handled_interrupts() as interrupts:
        try:
            _call_and_exit(call)
        except KeyboardInterrupt:
            interrupts.report()
            sys.exit(interrupts.exit_code)


def _end_processes() -> None:
    """Ends the group of the processes of a command that has ended well; one without accelerate has none."""
    if "accelerate" in sys.modules:
        from rerank.training.processes import end_processes

        end_processes()


def _call_and_exit(call: Callable[[], object]) -> None:
    try:
        call()
        _end_processes()
        sys.stdout.flush()
    except (UserError, cyclopts.CycloptsError) as error:
        from rerank.cli.errors import message

        print(f"rerank: {message(error)}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno is not None and error.filename is not None:  # a file that the system refuses, removes or breaks
            from rerank.cli.errors import message

            print(f"rerank: {message(error)}", file=sys.stderr)
            sys.exit(2)
        if error.errno not in (errno.EPIPE, *FULL):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python reports it again at exit
        if error.errno in FULL:
            print(f"rerank: standard output: {error.strerror}", file=sys.stderr)
        sys.exit(2 if error.errno in FULL else 141)  # 141: the shell's code for writing to a closed pipe
