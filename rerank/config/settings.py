"""The settings of an experiment: frozen dataclasses whose defaults are those of the paper's text experiment.

Each setting is declared once: its type, its default, its bounds and, in the string below it, its help text. The command
line makes a flag of every setting, a TOML file has the same names, and `validate` checks the same bounds.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from rerank.config.training_settings import ListsSettings, LossSettings, PretrainingSettings, TrainingSettings
from rerank.utils.parameters import Count, PathText, Pattern, TemplateText, Whole, at_least, between

RESERVED = ("index", "tokens", "features", "embeddings")
"""Names in the folder of a collection that no experiment may have."""

PRETRAINED = "pretrained-"
"""How the folders of pre-trained encoders begin, which are next to the experiments of a collection."""

NAME = Pattern(
    rf"(?!\.|{PRETRAINED}|(?:{'|'.join(RESERVED)})$)[\w.=+-]+",
    f"letters, digits and . = + - _ only, and none of {', '.join(RESERVED)}, {PRETRAINED}…",
    longest=200,
)


@dataclass(frozen=True)
class CollectionSettings:
    """The documents, queries and, to train and to evaluate, relevance judgments."""

    source: Annotated[PathText, Parameter(alias="--collection")] = "disks45/nocr/trec-robust-2004"
    """An ir_datasets id, a folder in BEIR's layout, or SVMlight files of feature vectors."""
    train_queries: Annotated[Count, at_least(1)] = "all"
    """Training queries of a fold, drawn by --seed; BM25 does not search for those that no fold has."""
    folds: Annotated[Whole, at_least(3)] = 5
    """Cross-validation folds, if the collection has neither official ones nor a published split."""
    queries: Annotated[PathText, Parameter(alias="--queries")] = ""
    """A file of queries, TSV (id, tab, text) or JSONL, in the place of the collection's."""
    language: str = "en"
    """Language of documents and queries for BM25: de, fr, zh, …, or standard (no stemming)."""


@dataclass(frozen=True)
class FirstStageSettings:
    """The ranking to re-rank."""

    run: PathText = ""
    """A TREC run file to re-rank instead of BM25."""
    index: PathText = "auto"
    """auto (own if there are documents, else prebuilt), own, a Pyserini prebuilt index, or a folder."""
    depth: Annotated[Whole, at_least(1), Parameter(alias="--depth")] = 150
    """Candidates per query."""
    k1: Annotated[float, between(0, 1e6)] = 0.9
    """BM25's k1."""
    b: Annotated[float, between(0, 1)] = 0.4
    """BM25's b."""
    threads: Annotated[Whole, between(0, 1024)] = 0
    """Threads for indexing and retrieval; 0: all cores."""


@dataclass(frozen=True)
class EncoderSettings:
    """The model that scores text."""

    name: Annotated[PathText, Parameter(alias="--encoder")] = "bert-base-uncased"
    """A Hugging Face encoder or cross-encoder: a hub name or a folder."""
    max_doc_tokens: Annotated[Whole, at_least(1)] = 800
    """Tokens of a document; the rest is cut off."""
    pooling: str = "mean"
    """How the scores of a document's passages become its score."""
    template: TemplateText = ""
    """A prompt with {query} and {document}, for models trained with one; \\n is a line break."""
    lora_rank: Annotated[Whole, at_least(0)] = 0
    """Rank of LoRA (peft) on all linear layers of the body, with alpha twice the rank; 0: all weights are trained."""
    first_stage_weight: Annotated[float, at_least(0)] = 0.0
    """Weight of the first stage's score, standardised by query, which the model's score is added to; 0: not added."""


@dataclass(frozen=True)
class NetworkSettings:
    """The model that scores feature vectors: batch norm, a hidden layer with ReLU, batch norm, one output."""

    hidden: Annotated[Whole, at_least(1)] = 1024
    """Hidden units."""
    transform: Literal["none", "log1p"] = "none"
    """Of the features: none, or sign(x) log(1 + |x|) for features on raw scales."""


@dataclass(frozen=True)
class OutputSettings:
    """Where results are written: FOLDER/<collection>/<name>/fold<i>."""

    folder: PathText = "runs"
    """The folder of all results."""
    name: Annotated[str, Parameter(alias="--name", validator=NAME)] = ""
    """The experiment's name; default: the loss."""


@dataclass(frozen=True)
class Config:
    """All settings of an experiment.

    In Python a string stands for a section with that main key:

    >>> Config(collection="my-collection", loss="approx").collection.source
    'my-collection'
    """

    collection: CollectionSettings = field(default_factory=CollectionSettings)
    first_stage: FirstStageSettings = field(default_factory=FirstStageSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    lists: ListsSettings = field(default_factory=ListsSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    pretraining: PretrainingSettings = field(default_factory=PretrainingSettings)
    output: OutputSettings = field(default_factory=OutputSettings)

    if TYPE_CHECKING:  # the generated __init__, with the strings that __post_init__ accepts

        def __init__(
            self,
            collection: CollectionSettings | str = ...,
            first_stage: FirstStageSettings = ...,
            encoder: EncoderSettings | str = ...,
            network: NetworkSettings = ...,
            lists: ListsSettings = ...,
            loss: LossSettings | str = ...,
            training: TrainingSettings = ...,
            pretraining: PretrainingSettings = ...,
            output: OutputSettings = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if isinstance(self.collection, str):
            object.__setattr__(self, "collection", CollectionSettings(source=self.collection))
        if isinstance(self.encoder, str):
            object.__setattr__(self, "encoder", EncoderSettings(name=self.encoder))
        if isinstance(self.loss, str):
            object.__setattr__(self, "loss", LossSettings(name=self.loss))
