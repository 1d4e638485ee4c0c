"""The settings of an experiment: frozen dataclasses whose defaults are those of the paper's text experiment.

Each setting is declared once: its type, its default, its bounds and, in the string below it, its help text. The command
line makes a flag of every setting, a TOML file has the same names, and `validate` checks the same bounds.
"""

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, Literal, get_type_hints

from cyclopts import Parameter, default_name_transform

from rerank.errors import UserError
from rerank.utils.parameters import (
    Count,
    CountOrAuto,
    PathText,
    Pattern,
    Whole,
    at_least,
    between,
    section,
    validators,
)

RESERVED = ("index", "tokens", "features")
"""Names in the folder of a collection that no experiment may have."""

PRETRAINED = "pretrained-"
"""How the folders of pre-trained encoders begin, which are next to the experiments of a collection."""

NAME = Pattern(
    rf"(?!\.|{PRETRAINED}|(?:{'|'.join(RESERVED)})$)[\w.=+-]+",
    f"letters, digits and . = + - _ only, and none of {', '.join(RESERVED)}, {PRETRAINED}…",
)
DEVICE = Pattern(r"auto|cpu|cuda(:\d+)?|mps", "auto, cpu, cuda, cuda:N or mps")


@section("collection", 1)
@dataclass(frozen=True)
class CollectionSettings:
    """The documents, queries and relevance judgments."""

    source: Annotated[PathText, Parameter(alias="--collection")] = "disks45/nocr/trec-robust-2004"
    """An ir_datasets id, a folder in BEIR's layout, or SVMlight files of feature vectors."""
    folds: Annotated[Whole, at_least(3)] = 5
    """Cross-validation folds, if the collection has no official ones."""


@section("first-stage", 2)
@dataclass(frozen=True)
class FirstStageSettings:
    """The ranking to re-rank."""

    run: PathText = ""
    """A TREC run file to re-rank instead of BM25."""
    index: PathText = "auto"
    """auto (own if there are documents, else prebuilt), own, a Pyserini prebuilt index, or a folder."""
    depth: Annotated[Whole, at_least(1), Parameter(alias="--depth")] = 150
    """Candidates per query."""
    k1: Annotated[float, at_least(0)] = 0.9
    """BM25's k1."""
    b: Annotated[float, between(0, 1)] = 0.4
    """BM25's b."""
    threads: Annotated[Whole, at_least(0)] = 0
    """Threads for indexing and retrieval; 0: all cores."""


@section("encoder", 3)
@dataclass(frozen=True)
class EncoderSettings:
    """The model that scores text."""

    name: Annotated[PathText, Parameter(alias="--encoder")] = "bert-base-uncased"
    """A Hugging Face encoder or cross-encoder: a hub name or a folder."""
    max_doc_tokens: Annotated[Whole, at_least(1)] = 800
    """Tokens of a document; the rest is cut off."""
    pooling: Literal["mean", "first", "max", "sum"] = "mean"
    """How passages make a document's score; mean: of their [CLS] vectors."""


@section("network", 4)
@dataclass(frozen=True)
class NetworkSettings:
    """The model that scores feature vectors: batch norm, a hidden layer with ReLU, batch norm, one output."""

    hidden: Annotated[Whole, at_least(1)] = 1024
    """Hidden units."""


@section("lists", 5)
@dataclass(frozen=True)
class ListsSettings:
    """Which candidates of a query form a training list."""

    relevant: Annotated[Count, at_least(1)] = 2
    """Relevant documents per list."""
    non_relevant: Annotated[Count, at_least(1)] = 2
    """Non-relevant documents per list."""


@section("loss", 6)
@dataclass(frozen=True)
class LossSettings:
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
    bins: Whole | None = None
    """Bins of ListAP."""
    low: float | None = None
    """Lowest score that ListAP's bins cover."""
    high: float | None = None
    """Highest score that ListAP's bins cover."""

    def hyperparameters(self) -> dict[str, Any]:
        """Those that were given."""
        return {key: value for key, value in asdict(self).items() if key != "name" and value is not None}


@section("training", 7)
@dataclass(frozen=True)
class TrainingSettings:
    """How the model is fine-tuned, and where it runs."""

    epochs: Annotated[Whole, at_least(1), Parameter(alias="--epochs")] = 100
    """Maximum number of epochs."""
    lists_per_epoch: Annotated[Count, at_least(1)] = 256
    """Training lists per epoch; all: one per training query."""
    lists_per_step: Annotated[Whole, at_least(1), Parameter(alias="--batch-size")] = 8
    """Batch size: lists per optimizer step."""
    lr: Annotated[float, at_least(0), Parameter(alias="--lr")] = 2e-5
    """Adam's learning rate for the encoder or the feature network."""
    head_lr: Annotated[float, at_least(0)] = 1e-3
    """Adam's learning rate for the scoring layer on top of the encoder."""
    clip: Annotated[float, at_least(0)] = 0.0
    """Maximum gradient norm; 0: no clipping."""
    patience: Annotated[Whole, at_least(1)] = 20
    """Epochs without a better validation value before training stops."""
    measure: str = "ndcg_cut_20"
    """Validation measure to maximise, or loss (minimised; logged with a minus sign)."""
    device: Annotated[str, Parameter(alias="--device", validator=DEVICE)] = "auto"
    """auto (a GPU if there is one), cpu, cuda, cuda:1 or mps."""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """auto: bf16 on GPUs that support it."""
    max_tokens_per_forward: Annotated[CountOrAuto, at_least(1)] = "auto"
    """Tokens per forward pass, which bounds the memory; auto: halved when memory runs out."""
    gradient_checkpointing: bool = False
    """Recompute activations: less memory per token, about 1/3 more time."""
    seed: Annotated[Whole, at_least(0), Parameter(alias="--seed")] = 0
    """Random seed."""


@section("pretraining", 8)
@dataclass(frozen=True)
class PretrainingSettings:
    """Pre-training on pseudo-queries made from the documents, without queries or judgments."""

    steps: Annotated[Whole, at_least(0)] = 0
    """Maximum number of optimizer steps; 0: no pre-training."""
    lists_per_step: Annotated[Whole, at_least(1)] = 8
    """Lists (a pseudo-query and its documents) per optimizer step."""
    titles: Annotated[float, at_least(0)] = 2.0
    """Weight of titles among the pseudo-queries, relative to the next two."""
    sentences: Annotated[float, at_least(0)] = 1.0
    """Weight of sentences (inverse cloze task)."""
    keywords: Annotated[float, at_least(0)] = 1.0
    """Weight of keyword queries."""
    keep_sentence: Annotated[float, between(0, 1)] = 0.1
    """Probability that a sentence query stays in its document."""
    neighbours: Annotated[Whole, at_least(1)] = 3
    """Negatives per list that BM25 retrieves for the pseudo-query."""
    depth: Annotated[Whole, at_least(1)] = 50
    """BM25 depth from which they are drawn."""
    random: Annotated[Whole, at_least(0)] = 1
    """Negatives per list that are drawn from all documents."""
    loss: str = "softmax"
    """Any loss of --loss."""
    lr: Annotated[float, at_least(0)] = 5e-5
    """Adam's learning rate for the encoder."""
    head_lr: Annotated[float, at_least(0)] = 1e-3
    """Adam's learning rate for the scoring layer."""
    held_out: Annotated[Whole, at_least(1)] = 100
    """Documents (at most a fifth) whose pseudo-queries are held out for validation by MRR."""
    validate_every: Annotated[Whole, at_least(1)] = 50
    """Steps between two validations."""
    patience: Annotated[Whole, at_least(1)] = 3
    """Validations without a better MRR before pre-training stops."""

    def weights(self) -> dict[str, float]:
        """The weight of each kind of pseudo-query."""
        return {"title": self.titles, "sentence": self.sentences, "keywords": self.keywords}


@section("output", 9)
@dataclass(frozen=True)
class OutputSettings:
    """Where results are written: FOLDER/<collection>/<name>/fold<i>."""

    folder: PathText = "runs"
    """The folder of all results."""
    name: Annotated[str, Parameter(alias="--name", validator=NAME)] = ""
    """The experiment's name; default: the loss."""


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


def flag_name(section_name: str, key: str) -> str:
    """The flag of a setting.

    >>> flag_name("first_stage", "k1")
    '--first-stage.k1'
    """
    return f"--{default_name_transform(section_name)}.{default_name_transform(key)}"


def validate(config: Config) -> None:
    """Raises UserError for a value that a setting cannot have; the command line has the same message."""
    for part in fields(config):
        settings = getattr(config, part.name)
        annotations = get_type_hints(type(settings), include_extras=True)
        for key, value in asdict(settings).items():
            _validate_setting(flag_name(part.name, key), value, annotations[key])
    if not any(config.pretraining.weights().values()):
        raise UserError(
            "--pretraining.titles, --pretraining.sentences, --pretraining.keywords: all are 0; one must be above 0"
        )


def _validate_setting(flag: str, value: Any, annotation: Any) -> None:
    try:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("expected a finite number")
        for validator in validators(annotation):
            validator(annotation, value)
    except ValueError as error:
        raise UserError(f"{flag}: got {value}, {error}") from error
