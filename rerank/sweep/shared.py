"""What the cells of a sweep share, made once before the workers start: retrieval, warm-up, tokens, judgments, folds."""

from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from rerank.config import Config
from rerank.errors import UserError
from rerank.experiment import Experiment, open_experiment
from rerank.folds import pick
from rerank.models.cross_encoder import open_cross_encoder
from rerank.parts import text_inputs


class Shared(NamedTuple):
    """`folder` is runs/<collection>, `folds` the names of the sweep's folds, `all_folds` those of the collection."""

    folder: Path
    folds: list[str]
    all_folds: list[str]


def prepare_shared(configs: list[Config], fold: str) -> list[Shared]:
    """For each cell what it shares with the cells that differ from it in loss, lists, training or name alone.

    Raises UserError for what the user can mend.
    """
    made: dict[str, Shared] = {}
    found = []
    for config in configs:
        tables = asdict(config)
        key = str({name: tables[name] for name in ("collection", "first_stage", "encoder", "warmup")})
        if key not in made:
            made[key] = _prepare(config, fold)
        found.append(made[key])
    return found


def _prepare(config: Config, fold: str) -> Shared:
    experiment = open_experiment(config)
    if experiment.accelerator.num_processes > 1:
        raise UserError("a sweep starts its own processes: run it without accelerate or torchrun, with --workers N")
    _tokenise(experiment)
    folds = experiment.prepared.folds
    return Shared(experiment.prepared.folder, [part.name for part in pick(folds, fold)], [part.name for part in folds])


def _tokenise(experiment: Experiment) -> None:
    config = experiment.config
    _, tokenizer, max_length = open_cross_encoder(experiment.encoder, config.encoder.pooling, config.training.seed)
    text_inputs(config, experiment.prepared, tokenizer, max_length)
