"""The command line of the benchmarks: each command is the function of a module."""

from functools import partial

from scripts.benchmarks.embedding import embedding
from scripts.benchmarks.exports import exports
from scripts.benchmarks.fine_tuning import fine_tuning
from scripts.benchmarks.heads import heads
from scripts.benchmarks.losses import losses
from scripts.benchmarks.matches import matches
from scripts.benchmarks.scoring import scoring
from scripts.benchmarks.search import search
from scripts.benchmarks.serving_load import serving_load
from scripts.benchmarks.serving_restart import serving_restart
from scripts.benchmarks.training import training
from scripts.command_line import open_app, run_app

app = open_app(
    "python -m scripts.benchmarks",
    "Measures rerank on this machine, side by side with other libraries.",
)
for _command in (
    training, scoring, embedding, fine_tuning, exports, heads, losses, search, matches, serving_load, serving_restart,
):  # fmt: skip
    app.command(_command)
main = partial(run_app, app)
