"""The commands of the command line; each is in a module that is imported when it is called."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from cyclopts import App, ArgumentCollection

from rerank.utils.errors import UserError
from rerank.utils.plugins import add_plugins, load_plugins

if TYPE_CHECKING:
    from cyclopts.help.protocols import HelpFormatter

COMMANDS = {
    "demo": "Run the whole pipeline on a small generated collection.\n\n"
    "BM25, training with two losses on three folds, the table; about two minutes on two idle cores, no network.",
    "doctor": "Check that Java, the packages and the GPU are ready.\n\n"
    "A collection and an encoder are checked if they are given. Exit code 1 if something is missing.",
    "fit": "Fit the best pipeline for a collection and its judgments, as one folder that searches and serves.\n\n"
    "BM25, a bi-encoder, feedback, fusion, late interaction, neighbours and stages that learn from the judgments are "
    "cross-validated; the last stage answers unless another is clearly ahead.\n\n"
    "Example: rerank fit my-collection --encoder sentence-transformers/all-MiniLM-L6-v2",
    "update": "Take new, changed and removed documents into a fitted pipeline.\n\n"
    "Only new and changed documents are embedded; nothing is learned or measured again.\n\n"
    "Example: rerank update runs/my-collection/pipeline",
    "retrieve": "Retrieve candidates with BM25 into runs/<collection>/bm25.run.\n\n"
    "Example: rerank retrieve --collection my-collection --depth 100",
    "fuse": "Fuse runs into one, by reciprocal rank or by interpolation.\n\n"
    "The weights of an interpolation are given, or tuned on validation queries.\n\n"
    "Example: rerank fuse bm25.run dense.run --out fused.run",
    "mine": "Write training lists with hard negatives: documents that rank high and are not relevant.\n\n"
    "Example: rerank mine my-collection --by runs/my-collection/bm25.run --out lists.jsonl",
    "train": "Fine-tune an encoder, or a network on feature vectors, and write the runs of the test queries.\n\n"
    "Finished folds are kept; the same command resumes an interrupted one.\n\n"
    "Example: rerank train --collection my-collection --encoder microsoft/MiniLM-L12-H384-uncased --loss smoothi",
    "sweep": "Train every combination of a grid of settings in parallel.\n\nFinished cells are kept.\n\n"
    "Example: rerank sweep letor --collection MQ2008",
    "distill": "Train an encoder on the scores of a cross-encoder, its teacher.\n\n"
    "The teacher scores the candidates of every query once; its scores are kept.\n\n"
    "Example: rerank distill cross-encoder/ms-marco-MiniLM-L12-v2 --student microsoft/MiniLM-L6-H384-uncased "
    "--collection my-collection",
    "score": "Rank queries with a fitted pipeline, or re-rank a run with a cross-encoder.\n\n"
    "No judgments are needed; --queries gives new queries.\n\n"
    "Example: rerank score runs/my-collection/pipeline --queries topics.tsv --out topics.run",
    "search": "Search a collection with a fitted pipeline or a cross-encoder; the words of the query are marked.\n\n"
    'Example: rerank search runs/my-collection/pipeline "wing flutter"',
    "serve": "Answer searches over HTTP, and re-ranking requests in the APIs of TEI, Jina, Cohere and vLLM.\n\n"
    "Documents of any length are split into passages; requests are scored together.\n\n"
    "Example: rerank serve runs/my-collection/pipeline",
    "export": "Write a checkpoint as a graph for a CPU, in float32 or int8.\n\n"
    "`rerank score`, `search`, `serve` and `Reranker.load` take its folder.\n\n"
    "Example: rerank export runs/my-collection/smoothi/fold1/checkpoint small --format onnx --int8",
    "eval": "Evaluate and compare runs: means, standard errors, significance tests.\n\n"
    "Example: rerank eval bm25.run ours.run --qrels qrels.txt --measures nDCG@20 AP",
    "verify": "Verify finished runs against their manifests: files, hashes, settings, values.\n\n"
    "Exit code 1 if something differs.\n\n"
    "Example: rerank verify runs/my-collection",
    "report": "Write an HTML page about experiments, a pipeline or run files: tables, charts, queries, settings.\n\n"
    "Example: rerank report runs/my-collection",
    "plot": "Write a chart of the report as a PDF, SVG or PNG file.\n\n"
    "Example: rerank plot gain bm25.run ours.run --qrels qrels.txt --out gain.pdf",
}
"""The help of each command, in the order of the data flow; the first sentence is its line in `rerank --help`."""

FUNCTIONS = {"eval": "evaluate"}
"""Commands whose function has another name."""

PLUGIN = "--plugin"
HELP = ("--help", "-h")

END = "--"
"""The word that ends the flags."""

ALL = "all"
"""The word after --help that shows all settings."""

WITH_SETTINGS = ("doctor", "fit", "retrieve", "mine", "train", "distill", "score", "search", "serve", "export")
"""Commands that take --config."""


def make_app(formatter: "HelpFormatter | None" = None) -> App:
    """The command line; `formatter` prints its help."""
    app = App(
        name="rerank",
        help="Fine-tunes a cross-encoder to re-rank the results of a first-stage retriever such as BM25, directly "
        "optimising a differentiable version of the evaluation metric.",
        help_epilogue="With --plugin MODULE, a command imports your module, which registers losses, stages, ….",
        help_format="plaintext",
        help_formatter=formatter,
        help_on_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for position, (command, text) in enumerate(COMMANDS.items()):
        app.command(
            f"rerank.cli.{command}:{FUNCTIONS.get(command, command)}",
            name=command,
            help=text,
            sort_key=position,
            config=[_read_config_file] if command in WITH_SETTINGS else [],
        )
    app.register_install_completion_command(help="Install completion of commands and flags for bash, zsh or fish.")
    app["--help"].sort_key = app["--version"].sort_key = len(COMMANDS)
    return app


def run(words: Sequence[str]) -> None:
    """Runs the words of a command line, after handling `--plugin MODULE` and `--help all`."""
    left, modules = _take_plugins(words)
    if modules:
        add_plugins(modules)
        load_plugins()
    formatter = None
    place = next((place for place, word in enumerate(left) if word in HELP), 0)
    if place:  # the help of a command; that of `rerank` itself has no settings
        from rerank.cli.help import Formatter

        formatter = Formatter(whole=left[place + 1 : place + 2] == [ALL])
        left = left[: place + 1]
    make_app(formatter)(with_values(left), exit_on_error=False, print_error=False)


def _read_config_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fills the settings from the file of --config; cyclopts calls it after reading the flags."""
    from rerank.config.files import config_file
    from rerank.config.flags import fill
    from rerank.experiments.runs.settings import read_toml

    if tokens := next(argument.tokens for argument in arguments if "--config" in argument.names):
        path = config_file(tokens[-1].value)
        fill(arguments, read_toml(path, "--config "), path)


def with_values(words: Sequence[str]) -> list[str]:
    """The words with explicit values for the boolean flags of a loss.

    >>> with_values(["--loss.no-stop-gradient", "--loss.stop-gradient", "--loss.alpha", "2"])
    ['--loss.stop-gradient=false', '--loss.stop-gradient=true', '--loss.alpha', '2']
    """
    found: list[str] = []
    for word, following in pairwise([*words, END]):
        flag, equals, value = word.partition("=")
        key = flag.removeprefix("--loss.").replace("_", "-")
        if not flag.startswith("--loss.") or END in found:
            found.append(word)
        elif key.startswith("no-") and not equals:
            found.append(f"--loss.{key.removeprefix('no-')}=false")
        elif key == "name" or equals or not following.startswith("--"):
            found.append(f"--loss.{key}{equals}{value}")
        else:
            found.append(f"--loss.{key}=true")
    return found


def _take_plugins(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words without `--plugin MODULE`, and the modules; raises UserError for a flag without a module."""
    left, modules, given = [], [], iter(words)
    for word in given:
        flag, equals, module = word.partition("=")
        if flag != PLUGIN:
            left.append(word)
            if word == END:
                break
            continue
        module = module if equals else next(given, "")
        if not all(name.isidentifier() for name in module.split(".")):
            raise UserError(f"{PLUGIN}: expected the name of a module, such as my_losses, got {module or 'nothing'}")
        modules.append(module)
    return [*left, *given], modules
