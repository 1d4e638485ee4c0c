"""The settings of an experiment: frozen tables whose defaults are the paper's text experiment."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal, TypedDict, Union, get_args

from cyclopts import Group, Parameter, Token, default_name_transform

from rerank.errors import UserError
from rerank.utils.registry import describe_hyperparameters, describe_losses


def _whole(expected: Any, tokens: Sequence[Token]) -> int | str:
    """A whole number, or a word where one may stand for it; cyclopts itself would round 2.5."""
    (token,) = tokens
    if token.value in (words := get_args(get_args(expected)[1]) if get_args(expected) else ()):
        return token.value
    try:
        return int(token.value)
    except ValueError:
        or_word = "".join(f" or {word}" for word in words)
        raise ValueError(f"expected a whole number{or_word}, got {token.value}") from None


_WHOLE = Parameter(converter=_whole)
Whole = Annotated[int, _WHOLE]
Count = Annotated[int | Literal["all"], _WHOLE]


def _table(name: str, place: int) -> Parameter:
    """The keys of a table are the flags --name.key, and stand together in the help."""

    def flag(key: str) -> str:
        return f"{name}.{default_name_transform(key)}"

    return Parameter(name="*", name_transform=flag, group=Group(name, sort_key=place))


@_table("collection", 1)
@dataclass(frozen=True)
class CollectionSettings:
    """What is searched."""

    source: Annotated[str, Parameter(alias="--collection")] = "disks45/nocr/trec-robust-2004"
    """An ir_datasets id, a folder in BEIR's layout, or feature vectors: Fold1/train.txt …, or one SVMlight file."""
    folds: Whole = 5
    """Folds to cut the queries into where the collection prescribes none."""


@_table("first-stage", 2)
@dataclass(frozen=True)
class FirstStageSettings:
    """The ranking that is re-ranked."""

    run: str = ""
    """A TREC run that stands in for BM25."""
    index: str = "auto"
    """auto (own where the documents are here, else the prebuilt one), own, a Pyserini prebuilt index, or a folder."""
    depth: Whole = 150
    """Candidates a query."""
    k1: float = 0.9
    """BM25's k1."""
    b: float = 0.4
    """BM25's b."""
    threads: Whole = 0
    """Threads for indexing and retrieval; 0 takes all cores."""


@_table("encoder", 3)
@dataclass(frozen=True)
class EncoderSettings:
    """The model that scores a query and a document."""

    name: Annotated[str, Parameter(alias="--encoder")] = "bert-base-uncased"
    """A Hugging Face encoder or cross-encoder: a name on the hub or a folder."""
    max_doc_tokens: Whole = 800
    """Tokens that are kept of a document."""
    pooling: Literal["mean", "first", "max", "sum"] = "mean"
    """How a document's score comes from its passages; mean is the mean of their [CLS] vectors."""


@_table("network", 4)
@dataclass(frozen=True)
class NetworkSettings:
    """The model that scores a feature vector: batch norm, a hidden layer with ReLU, batch norm, one output."""

    hidden: Whole = 1024
    """Hidden units."""


@_table("lists", 5)
@dataclass(frozen=True)
class ListsSettings:
    """Which candidates make a training list."""

    relevant: Count = 2
    """Relevant documents of a list: a number, or all."""
    non_relevant: Count = 2
    """Non-relevant documents of a list: a number, or all."""


@_table("loss", 6)
@dataclass(frozen=True)
class LossSettings:
    """The loss and its hyperparameters; one that is left out has the loss's own default."""

    name: str = "smoothi"
    """A name of rerank.losses.LOSSES."""
    hyperparameters: dict[str, Any] = field(default_factory=dict, hash=False)
    """Those that differ from the loss's defaults: {"alpha": 10.0}."""


def _loss_flag() -> Any:
    return Annotated[str, Parameter(alias="--loss", help=f"One of {', '.join(describe_losses())}.")]


def _hyperparameter_flags() -> Any:
    """The flags --loss.KEY and the keys of [loss]: one for each hyperparameter of any loss, with its type and help."""
    flags = {}
    for key, losses in describe_hyperparameters().items():
        types = [Whole if of_loss.type is int else of_loss.type for of_loss in losses.values()]
        description = next((of_loss.description for of_loss in losses.values() if of_loss.description), "")
        names_by_default: dict[str, list[str]] = {}
        for name, of_loss in losses.items():
            names_by_default.setdefault(str(of_loss.default), []).append(name)
        defaults = "; ".join(f"{', '.join(names)}: {value}" for value, names in names_by_default.items())
        text = f"{description[:1].upper()}{description[1:]} [default of {defaults}]"
        flags[key] = Annotated[Union[*types], Parameter(help=text)]
    return Annotated[TypedDict("Hyperparameters", flags, total=False), Parameter(name="*")]  # type: ignore[operator]


# cyclopts evaluates the annotations of a section each time it parses flags, so that a loss that was registered after
# this module was imported has its flags too.
LossSettings.__annotations__ |= {"name": "_loss_flag()", "hyperparameters": "_hyperparameter_flags()"}


@_table("training", 7)
@dataclass(frozen=True)
class TrainingSettings:
    """How the model is fine-tuned."""

    epochs: Annotated[Whole, Parameter(alias="--epochs")] = 100
    """Epochs at most."""
    lists_per_epoch: Count = 256
    """Training lists of an epoch: a number, or all for one list of each training query."""
    lists_per_step: Whole = 8
    """Lists whose gradients are averaged into one step."""
    lr: float = 2e-5
    """Adam's learning rate for the encoder, or the whole network of feature vectors."""
    head_lr: float = 1e-3
    """Adam's learning rate for the dense layer on top."""
    clip: float = 0.0
    """Largest norm of a step's gradient; 0 does not clip."""
    patience: Whole = 20
    """Epochs without a better validation value before training stops."""
    measure: str = "nDCG@20"
    """The trec_eval measure that validation maximises; or loss, which it minimises: the log then has its negative."""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """auto takes bf16 where a GPU has it."""
    max_tokens_per_forward: Annotated[int | Literal["auto"], _WHOLE] = "auto"
    """Tokens that go through the encoder at a time, which sets the memory; auto tries, and halves where it runs out."""
    gradient_checkpointing: bool = False
    """Whether activations are computed again instead of kept: less memory a token, a third more work."""
    seed: Annotated[Whole, Parameter(alias="--seed")] = 0
    """Seed of everything random."""


@_table("pretraining", 8)
@dataclass(frozen=True)
class PretrainingSettings:
    """Training on the documents alone, before any query or judgment is seen; once for all folds and losses."""

    steps: Whole = 0
    """Steps at most; 0 is no pre-training."""
    lists_per_step: Whole = 8
    """Lists of a pseudo-query and its documents whose gradients are averaged into one step."""
    titles: float = 2.0
    """Share of titles among the pseudo-queries, relative to the two below; documents without a title do without."""
    sentences: float = 1.0
    """Share of sentences (inverse cloze)."""
    keywords: float = 1.0
    """Share of keyword queries."""
    keep_sentence: float = 0.1
    """How often a sentence stays in its document."""
    neighbours: Whole = 3
    """Negatives of a list that BM25 finds for the pseudo-query."""
    depth: Whole = 50
    """BM25's best documents that they are drawn from."""
    random: Whole = 1
    """Negatives of a list that are drawn from all documents."""
    loss: str = "softmax"
    """A name of rerank.losses.LOSSES."""
    lr: float = 5e-5
    """Adam's learning rate for the encoder."""
    head_lr: float = 1e-3
    """Adam's learning rate for the dense layer on top."""
    held_out: Whole = 100
    """Documents, at most a fifth of all, whose pseudo-queries are held out and measured by MRR."""
    validate_every: Whole = 50
    """Steps between two measurements."""
    patience: Whole = 3
    """Measurements without a better MRR before the pre-training stops."""

    def weights(self) -> dict[str, float]:
        """The kind of a pseudo-query -> its share."""
        return {"title": self.titles, "sentence": self.sentences, "keywords": self.keywords}


@_table("output", 9)
@dataclass(frozen=True)
class OutputSettings:
    """Where results go: FOLDER/<collection>/<name>/fold<i>."""

    folder: str = "runs"
    """The folder of all runs."""
    name: Annotated[str, Parameter(alias="--name")] = ""
    """The experiment's name; the loss's where none is given."""


@Parameter(name="*")
@dataclass(frozen=True)
class Config:
    """All settings of an experiment."""

    collection: CollectionSettings = field(default_factory=CollectionSettings)
    first_stage: FirstStageSettings = field(default_factory=FirstStageSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    lists: ListsSettings = field(default_factory=ListsSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    pretraining: PretrainingSettings = field(default_factory=PretrainingSettings)
    output: OutputSettings = field(default_factory=OutputSettings)


def sections(config: Config) -> dict[str, dict[str, Any]]:
    """The settings by section and key, as in config.toml: the loss's hyperparameters are keys of its section."""
    by_section = asdict(config)
    given = by_section["loss"].pop("hyperparameters")
    known = describe_losses().get(config.loss.name)
    # In the order of the loss's signature, so that files and names do not depend on the order of the flags.
    ordered = [key for key in (known.hyperparameters if known else ()) if key in given]
    by_section["loss"] |= {key: given[key] for key in (*ordered, *given)}
    return by_section


def replace_setting(config: Config, key: str, value: Any) -> Config:
    """The configuration with another value of a setting, such as training.lr or loss.alpha."""
    name, _, key = key.partition(".")
    section = getattr(config, name)
    if name == "loss" and key != "name":
        key, value = "hyperparameters", section.hyperparameters | {key: value}
    return replace(config, **{name: replace(section, **{key: value})})


RESERVED = ("index", "tokens", "features")


PRETRAINED = "pretrained-"
"""What else lies beside the experiments of a collection: their names, and how those of pre-trainings begin."""


def validate(config: Config) -> None:
    """Raises UserError for a value that no setting may have."""
    for section, values in sections(config).items():
        for key, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"--{section}.{key}: got {value}, expected a finite number".replace("_", "-"))
    name = config.output.name
    if name and (not re.fullmatch(r"[\w.=+-]+", name) or name.startswith((".", PRETRAINED)) or name in RESERVED):
        raise UserError(
            f"--name {name}: expected letters, digits and . = + - _ only, and none of "
            f"{', '.join(RESERVED)}, {PRETRAINED}…"
        )
    for key, share in (
        ("first-stage.b", config.first_stage.b),
        ("pretraining.keep-sentence", config.pretraining.keep_sentence),
    ):
        if share > 1:
            raise UserError(f"--{key}: got {share}, expected 0 to 1")
    if not any(config.pretraining.weights().values()):
        raise UserError(
            "--pretraining.titles, --pretraining.sentences, --pretraining.keywords: all are 0; one must be above 0"
        )
    least = {
        "collection.folds": 3,
        "first_stage.depth": 1,
        "first_stage.threads": 0,
        "first_stage.k1": 0,
        "first_stage.b": 0,
        "encoder.max_doc_tokens": 1,
        "network.hidden": 1,
        "lists.relevant": 1,
        "lists.non_relevant": 1,
        "training.epochs": 1,
        "training.lists_per_epoch": 1,
        "training.lists_per_step": 1,
        "training.patience": 1,
        "training.max_tokens_per_forward": 1,
        "training.lr": 0,
        "training.head_lr": 0,
        "training.clip": 0,
        "training.seed": 0,
        "pretraining.steps": 0,
        "pretraining.lists_per_step": 1,
        "pretraining.titles": 0,
        "pretraining.sentences": 0,
        "pretraining.keywords": 0,
        "pretraining.keep_sentence": 0,
        "pretraining.neighbours": 1,
        "pretraining.depth": 1,
        "pretraining.random": 0,
        "pretraining.lr": 0,
        "pretraining.head_lr": 0,
        "pretraining.held_out": 1,
        "pretraining.validate_every": 1,
        "pretraining.patience": 1,
    }
    for key, smallest in least.items():
        table, name = key.split(".")
        value = getattr(getattr(config, table), name)
        if value not in ("all", "auto") and not value >= smallest:
            raise UserError(f"--{key.replace('_', '-')}: got {value}, expected {smallest} or more")
