"""The settings of an experiment: frozen dataclasses whose defaults are those of the paper's text experiment.

Each setting is declared once: its type, its default, its bounds, and its help text in the string below it. cyclopts
reads the flags from these classes, a TOML file has the same names, and `validate` checks the same bounds.
"""

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Literal, get_type_hints

from cyclopts import Group, Parameter, default_name_transform

from rerank.config.losses import typed
from rerank.utils.errors import UserError
from rerank.utils.parameters import Count, CountOrAuto, PathText, Pattern, TemplateText, Whole, at_least, between, keyed
from rerank.utils.registry import Setting

OFTEN = Group("settings", help="The settings that are changed most often. More: --help all.", sort_key=1)
"""The settings on the first screen of the help of a command."""

RESERVED = ("index", "tokens", "features", "embeddings")
"""Reserved names in the folder of a collection; no experiment may have them."""

NAME = Pattern(
    rf"(?!\.|(?:{'|'.join(RESERVED)})$)[\w.=+-]+",
    f"letters, digits and . = + - _ only, and none of {', '.join(RESERVED)}",
    longest=200,
)
FIELDS = Pattern(r"([\w-]+(\+[\w-]+)*)?", "names of fields, joined by +")
Precision = Literal["auto", "float32", "bf16", "fp16"]
DEVICE = Pattern(r"auto|cpu|cuda(:\d+)?|mps", "auto, cpu, cuda, cuda:N or mps")


def section(name: str, position: int) -> Parameter:
    """A class decorator: the flags of the settings are --NAME.KEY, and the help lists them in one group."""
    name = default_name_transform(name)
    return Parameter(
        name="*",
        name_transform=lambda key: f"{name}.{default_name_transform(key)}",
        group=Group(name, sort_key=position),
    )


def often(*aliases: str) -> Parameter:
    """Marks a setting that is changed often, and gives its short flags."""
    return Parameter(alias=aliases, group=OFTEN)


@section("collection", 2)
@dataclass(frozen=True)
class CollectionSettings:
    """The documents, the queries and, for training and evaluation, the relevance judgments."""

    source: Annotated[PathText, often("--collection")] = "disks45/nocr/trec-robust-2004"
    """An ir_datasets id, a folder in BEIR's layout, a file of pairs or triples, or SVMlight files of features."""
    train_queries: Annotated[Count, at_least(1)] = "all"
    """Training queries of a fold, drawn by --seed; BM25 does not search for queries that no fold has."""
    folds: Annotated[Whole, at_least(3)] = 5
    """Cross-validation folds, if the collection has neither official ones nor a published split."""
    queries: Annotated[PathText, often("--queries")] = ""
    """A file of queries, TSV (id, tab, text), JSONL or TREC topics, instead of the collection's queries."""
    query_field: Annotated[str, Parameter(validator=FIELDS)] = ""
    """The field of a query that is its text, such as title or title+description; default: title; in JSON, text."""
    language: str = "en"
    """Language of documents and queries for BM25: de, fr, zh, …, or standard (no stemming)."""

    @property
    def query_fields(self) -> list[str]:
        """The names in `query_field`."""
        return self.query_field.split("+") if self.query_field else []


@section("first_stage", 3)
@dataclass(frozen=True)
class FirstStageSettings:
    """The ranking to re-rank."""

    run: PathText = ""
    """A TREC run file to re-rank instead of BM25."""
    index: PathText = "auto"
    """auto (own if there are documents, else prebuilt), own, the name of a Pyserini prebuilt index, or a folder."""
    depth: Annotated[Whole, at_least(1), often("--depth")] = 150
    """Candidates per query."""
    k1: Annotated[float, between(0, 10**6)] = 0.9
    """BM25's k1."""
    b: Annotated[float, between(0, 1)] = 0.4
    """BM25's b."""
    threads: Annotated[Whole, between(0, 1024)] = 0
    """Threads for indexing and retrieval; 0: all cores."""


@section("encoder", 4)
@dataclass(frozen=True)
class EncoderSettings:
    """The model that scores text."""

    name: Annotated[PathText, often("--encoder")] = "bert-base-uncased"
    """A Hugging Face encoder or cross-encoder: a hub name or a folder."""
    max_doc_tokens: Annotated[Whole, at_least(1)] = 800
    """Tokens of a document; the rest is cut off."""
    passage_tokens: Annotated[Whole, at_least(0)] = 0
    """Tokens of a passage of a document, such as 225; 0: as few equal passages as fit the encoder."""
    passage_overlap: Annotated[Whole, at_least(0)] = 0
    """Tokens that a passage shares with the next one; less than passage-tokens."""
    pooling: str = "mean"
    """How passage scores become a document score: first, max, mean, softmax, sum, or a registered pooling."""
    template: TemplateText = ""
    """A prompt with {query} and {document}, for models trained with one; \\n is a line break."""
    lora_rank: Annotated[Whole, at_least(0)] = 0
    """Rank of LoRA (peft) on all linear layers of the body, with alpha twice the rank; 0: all weights are trained."""
    first_stage_weight: Annotated[float, at_least(0)] = 0.0
    """Weight of the first-stage score, standardised by query, that is added to the model's score; 0: not added."""


@section("network", 5)
@dataclass(frozen=True)
class NetworkSettings:
    """The model that scores feature vectors: batch norm, a hidden layer with ReLU, batch norm, one output."""

    hidden: Annotated[Whole, at_least(1)] = 1024
    """Hidden units."""
    dropout: Annotated[float, between(0, 0.9)] = 0.0
    """Share of the hidden units that are dropped at random in training."""
    transform: Literal["none", "log1p"] = "none"
    """Of the features: none, or sign(x) log(1 + |x|) for features on raw scales."""


@section("lists", 6)
@dataclass(frozen=True)
class ListsSettings:
    """Which candidates of a query form a training list."""

    relevant: Annotated[Count, at_least(1)] = 2
    """Relevant documents per list."""
    non_relevant: Annotated[Count, at_least(1)] = 2
    """Non-relevant documents per list."""


@section("loss", 7)
@dataclass(frozen=True)
class LossSettings:
    """The loss and its hyperparameters; a missing hyperparameter has the loss's default."""

    name: Annotated[str, often("--loss")] = "smoothi"
    """The name of the loss that training minimises."""
    hyperparameters: Annotated[dict[str, Setting], Parameter(name="--loss", converter=keyed)] = field(
        default_factory=dict, hash=False
    )
    """Hyperparameters that differ from the loss's defaults, --loss.KEY VALUE: {"alpha": 10.0}."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hyperparameters", typed(self.name, self.hyperparameters))


@section("training", 8)
@dataclass(frozen=True)
class TrainingSettings:
    """How the model is fine-tuned, and where it runs."""

    epochs: Annotated[Whole, at_least(1), often("--epochs")] = 100
    """Maximum number of epochs."""
    lists: PathText = ""
    """A file of training lists, a JSON object a line, used instead of lists drawn from the candidates."""
    lists_per_epoch: Annotated[Count, at_least(1)] = 256
    """Training lists per epoch; all: one per training query, or every list of the file once."""
    lists_per_step: Annotated[Whole, at_least(1), often("--batch-size")] = 8
    """Batch size: lists per optimizer step."""
    lr: Annotated[float, at_least(0), often("--lr")] = 2e-5
    """Adam's learning rate for the encoder or the feature network."""
    head_lr: Annotated[float, at_least(0)] = 1e-3
    """Adam's learning rate for the scoring layer on top of the encoder."""
    schedule: Literal["constant", "linear"] = "constant"
    """Learning rates after the warm-up: constant, or falling linearly to 0 at the end of the last epoch."""
    warmup_ratio: Annotated[float, between(0, 1)] = 0.0
    """Share of the steps of all --training.epochs over which the learning rates rise linearly from 0."""
    weight_decay: Annotated[float, at_least(0)] = 0.0
    """AdamW's decay of weight matrices, relative to the learning rate; 0: Adam."""
    average: Annotated[float, between(0, 1)] = 0.0
    """Decay per step, such as 0.99, of a moving average of the weights, which is validated and saved; 0: no average."""
    clip: Annotated[float, at_least(0)] = 0.0
    """Maximum gradient norm; 0: no clipping."""
    patience: Annotated[Whole, at_least(1)] = 20
    """Epochs without a better validation value before training stops."""
    validate_queries: Annotated[Count, at_least(1)] = "all"
    """Validation queries of a fold, drawn by --seed, that are scored after each epoch."""
    measure: str = "nDCG@20"
    """Validation measure to maximise, such as nDCG@20 or AP, or loss (minimised; logged negated)."""
    device: Annotated[str, often("--device"), Parameter(validator=DEVICE)] = "auto"
    """auto (a CUDA GPU if there is one, else the CPU), cpu, cuda, cuda:1 or mps."""
    precision: Precision = "auto"
    """auto: bf16 on CUDA GPUs and on CPUs where it is faster, fp16 on Volta and Turing, otherwise float32."""
    tf32: bool = True
    """Round the factors of float32 products on CUDA GPUs to TF32, which is faster from Ampere on."""
    deterministic: bool = False
    """Use torch's deterministic algorithms, so training on a GPU is repeatable; slower."""
    max_tokens_per_forward: Annotated[CountOrAuto, at_least(64)] = "auto"
    """Tokens per forward pass (a longer passage is a pass of its own); auto: halved when memory runs out."""
    gradient_checkpointing: bool = False
    """Recompute activations: less memory per token, about 1/3 more time."""
    seed: Annotated[Whole, between(0, 2**63 - 1), often("--seed")] = 0
    """Random seed."""
    track: str = ""
    """Experiment tracker: tensorboard, wandb, mlflow, …, if installed, or a registered one; none if empty."""


@section("output", 9)
@dataclass(frozen=True)
class OutputSettings:
    """Where results are written: FOLDER/<collection>/<name>/fold<i>."""

    folder: PathText = "runs"
    """The folder of all results."""
    name: Annotated[str, often("--name"), Parameter(validator=NAME)] = ""
    """The experiment's name; default: the name of the loss."""


@dataclass(frozen=True)
class Config:
    """All settings of an experiment.

    In Python a string is short for a section with that value of its main key:

    >>> Config(collection="my-collection", loss="approx").collection.source
    'my-collection'
    >>> Config(training=TrainingSettings(epochs=3)).training.epochs
    3
    >>> Config(training={"epochs": 3})
    Traceback (most recent call last):
    rerank.utils.errors.UserError: Config: training: expected TrainingSettings(…), got {'epochs': 3}
    """

    collection: CollectionSettings = field(default_factory=CollectionSettings)
    first_stage: FirstStageSettings = field(default_factory=FirstStageSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    lists: ListsSettings = field(default_factory=ListsSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    output: OutputSettings = field(default_factory=OutputSettings)

    if TYPE_CHECKING:  # the generated __init__, with the strings that __post_init__ accepts

        def __init__(self, collection: CollectionSettings | str = ..., **sections: object) -> None: ...

    def __post_init__(self) -> None:
        for name, kind in (("collection", CollectionSettings), ("encoder", EncoderSettings), ("loss", LossSettings)):
            if isinstance(main := getattr(self, name), str):
                object.__setattr__(self, name, kind(main))
        for field_of in fields(self):
            given, kind = getattr(self, field_of.name), SECTIONS[field_of.name]
            if not isinstance(given, kind):
                raise UserError(f"Config: {field_of.name}: expected {kind.__name__}(…), got {given!r}")

    @property
    def experiment(self) -> str:
        """The name of the experiment, by default that of its loss."""
        return self.output.name or self.loss.name


SECTIONS = get_type_hints(Config)
"""Section -> its class."""
