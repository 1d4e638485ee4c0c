"""The settings of an experiment: frozen tables whose defaults are the paper's text experiment."""

import json
import math
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, default_name_transform

from rerank.errors import UserError
from rerank.files import replacing

Count = int | Literal["all"]
RESERVED = ("index", "tokens")
"""What else lies beside the experiments of a collection."""

WITHOUT_EFFECT = ("folder", "name", "threads", "tokens_per_forward", "gradient_checkpointing")
"""Keys that may change within an experiment: its results do not depend on them."""


def _table(name: str, place: int) -> Parameter:
    """The keys of a table are the flags --name.key, and stand together in the help."""

    def flag(key: str) -> str:
        return f"{name}.{default_name_transform(key)}"

    return Parameter(name="*", name_transform=flag, group=Group(name, sort_key=place))


@_table("collection", 1)
@dataclass(frozen=True)
class CollectionTable:
    """What is searched."""

    source: Annotated[str, Parameter(alias="--collection")] = "disks45/nocr/trec-robust-2004"
    """An ir_datasets id, or a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv (BEIR's layout)."""
    folds: int = 5
    """Folds to cut the queries into where the collection prescribes none."""


@_table("first-stage", 2)
@dataclass(frozen=True)
class FirstStageTable:
    """The ranking that is re-ranked."""

    run: str = ""
    """A TREC run that stands in for BM25."""
    index: str = "auto"
    """auto (own where the documents are here, else the prebuilt one), own, a Pyserini prebuilt index, or a folder."""
    depth: int = 150
    """Candidates a query."""
    k1: float = 0.9
    """BM25's k1."""
    b: float = 0.4
    """BM25's b."""
    threads: int = 0
    """Threads for indexing and retrieval; 0 takes all cores."""


@_table("encoder", 3)
@dataclass(frozen=True)
class EncoderTable:
    """The model that scores a query and a document."""

    name: Annotated[str, Parameter(alias="--encoder")] = "bert-base-uncased"
    """A Hugging Face encoder or cross-encoder: a name on the hub or a folder."""
    max_doc_tokens: int = 800
    """Tokens that are kept of a document."""
    pooling: Literal["mean", "first", "max", "sum"] = "mean"
    """How a document's score comes from its passages; mean is the mean of their [CLS] vectors."""


@_table("lists", 4)
@dataclass(frozen=True)
class ListsTable:
    """Which candidates make a training list."""

    relevant: Count = 2
    """Relevant documents of a list: a number, or all."""
    non_relevant: Count = 2
    """Non-relevant documents of a list: a number, or all."""


@_table("loss", 5)
@dataclass(frozen=True)
class LossTable:
    """The loss and its hyperparameters; one that is left out has the loss's own default."""

    name: Annotated[str, Parameter(alias="--loss")] = "smoothi"
    """smoothi, hinge, or another name of rerank.losses.LOSSES."""
    metric: str | None = None
    """p@K, ndcg@K, ndcg or ap (metric losses)."""
    alpha: float | None = None
    """Inverse temperature of SmoothI and Approx."""
    delta: float | None = None
    """SmoothI's mass for documents that are already ranked, in (0, 0.5)."""
    stop_gradient: bool | None = None
    """Whether SmoothI's recursion is constant in the backward pass."""
    beta: float | None = None
    """Inverse temperature of Approx's truncation."""
    cutoff_offset: float | None = None
    """Where Approx's truncation stands behind the cut-off."""
    temperature: float | None = None
    """Temperature of NeuralSort and SoftSort."""
    power: float | None = None
    """Power of SoftSort's distance."""
    regularization: str | None = None
    """l2 or kl (FastSort)."""
    strength: float | None = None
    """Regularisation strength of FastSort."""
    epsilon: float | None = None
    """Entropic regularisation of OT."""
    margin: float | None = None
    """Margin of the hinge."""
    bins: int | None = None
    """Bins of ListAP."""
    low: float | None = None
    """Lowest score that ListAP's bins cover."""
    high: float | None = None
    """Highest score that ListAP's bins cover."""

    def hyperparameters(self) -> dict[str, Any]:
        """Those that were given."""
        return {key: value for key, value in asdict(self).items() if key != "name" and value is not None}


@_table("training", 6)
@dataclass(frozen=True)
class TrainingTable:
    """How the model is fine-tuned."""

    epochs: Annotated[int, Parameter(alias="--epochs")] = 100
    """Epochs at most."""
    lists_per_epoch: int = 256
    """Training lists of an epoch."""
    lists_per_step: int = 8
    """Lists whose gradients are averaged into one step."""
    lr: float = 2e-5
    """Adam's learning rate for the encoder."""
    head_lr: float = 1e-3
    """Adam's learning rate for the dense layer on top."""
    clip: float = 0.0
    """Largest norm of a step's gradient; 0 does not clip."""
    patience: int = 20
    """Epochs without a better validation value before training stops."""
    measure: str = "ndcg_cut_20"
    """The trec_eval measure that validation maximises."""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """auto takes bf16 where a GPU has it."""
    tokens_per_forward: int | Literal["auto"] = "auto"
    """Tokens that go through the encoder at a time, which sets the memory; auto tries, and halves where it runs out."""
    gradient_checkpointing: bool = False
    """Whether activations are computed again instead of kept: less memory a token, a third more work."""
    seed: Annotated[int, Parameter(alias="--seed")] = 0
    """Seed of everything random."""


@_table("output", 7)
@dataclass(frozen=True)
class OutputTable:
    """Where results go: FOLDER/<collection>/<name>/fold<i>."""

    folder: str = "runs"
    """The folder of all runs."""
    name: Annotated[str, Parameter(alias="--name")] = ""
    """The experiment's name; the loss's where none is given."""


@Parameter(name="*")
@dataclass(frozen=True)
class Config:
    """All settings of an experiment."""

    collection: CollectionTable = field(default_factory=CollectionTable)
    first_stage: FirstStageTable = field(default_factory=FirstStageTable)
    encoder: EncoderTable = field(default_factory=EncoderTable)
    lists: ListsTable = field(default_factory=ListsTable)
    loss: LossTable = field(default_factory=LossTable)
    training: TrainingTable = field(default_factory=TrainingTable)
    output: OutputTable = field(default_factory=OutputTable)


def check(config: Config) -> None:
    """Raises UserError for a value that no setting may have."""
    for section, values in asdict(config).items():
        for key, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"--{section}.{key}: got {value}, expected a finite number".replace("_", "-"))
    name = config.output.name
    if name and (not re.fullmatch(r"[\w.=+-]+", name) or name.startswith(".") or name in RESERVED):
        raise UserError(
            f"--name {name}: expected letters, digits and . = + - _ only, and none of {', '.join(RESERVED)}"
        )
    if config.first_stage.b > 1:
        raise UserError(f"--first-stage.b: got {config.first_stage.b}, expected 0 to 1")
    least = {
        "collection.folds": 3,
        "first_stage.depth": 1,
        "first_stage.threads": 0,
        "first_stage.k1": 0,
        "first_stage.b": 0,
        "encoder.max_doc_tokens": 1,
        "lists.relevant": 1,
        "lists.non_relevant": 1,
        "training.epochs": 1,
        "training.lists_per_epoch": 1,
        "training.lists_per_step": 1,
        "training.patience": 1,
        "training.tokens_per_forward": 1,
        "training.lr": 0,
        "training.head_lr": 0,
        "training.clip": 0,
        "training.seed": 0,
    }
    for key, smallest in least.items():
        table, name = key.split(".")
        value = getattr(getattr(config, table), name)
        if value not in ("all", "auto") and not value >= smallest:
            raise UserError(f"--{key.replace('_', '-')}: got {value}, expected {smallest} or more")


def to_toml(config: Config) -> str:
    """The configuration as TOML that `--config` reads back; what is None is left out."""
    lines = []
    for table in fields(config):
        lines.append(f"[{table.name}]")
        values = asdict(getattr(config, table.name))
        lines += [
            f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items() if value is not None
        ]
        lines.append("")
    return "\n".join(lines)


def keep(config: Config, path: Path) -> None:
    """Writes the configuration beside an experiment's results, or refuses to mix two in one folder.

    Raises UserError when `path` holds another configuration, and a fold was trained with it.
    """
    text = to_toml(config)
    begun = [*path.parent.glob("fold*/state"), *path.parent.glob("fold*/test.run")]
    if path.exists() and begun:
        before, now = (
            [line for line in toml.splitlines() if line.partition(" = ")[0] not in WITHOUT_EFFECT]
            for toml in (path.read_text(encoding="utf-8"), text)
        )
        if before == now:
            return
        old = "; ".join(line for line in before if line not in now) or "nothing"
        new = "; ".join(line for line in now if line not in before) or "nothing"
        raise UserError(
            f"{path}: this experiment was begun with other settings: there {old}; here {new}; "
            "give this one another --name, or remove the folder"
        )
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")
