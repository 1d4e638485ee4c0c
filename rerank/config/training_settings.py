"""The settings of a training: its lists, its loss, how weights are learned, and the pre-training.

See `rerank.config.settings`.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from rerank.utils.parameters import Count, CountOrAuto, PathText, Pattern, Whole, at_least, between

DEVICE = Pattern(r"auto|cpu|cuda(:\d+)?|mps", "auto, cpu, cuda, cuda:N or mps")


@dataclass(frozen=True)
class ListsSettings:
    """Which candidates of a query form a training list."""

    relevant: Annotated[Count, at_least(1)] = 2
    """Relevant documents per list."""
    non_relevant: Annotated[Count, at_least(1)] = 2
    """Non-relevant documents per list."""


@dataclass(frozen=True)
class LossSettings:
    """The loss and its hyperparameters; one that is left out has the loss's own default."""

    name: Annotated[str, Parameter(alias="--loss")] = "smoothi"
    """A name of rerank.losses.LOSSES."""
    hyperparameters: dict[str, Any] = field(default_factory=dict, hash=False)
    """Those that differ from the loss's defaults: {"alpha": 10.0}."""


@dataclass(frozen=True)
class TrainingSettings:
    """How the model is fine-tuned, and where it runs."""

    epochs: Annotated[Whole, at_least(1), Parameter(alias="--epochs")] = 100
    """Maximum number of epochs."""
    lists: PathText = ""
    """A file of training lists, a JSON object a line, used instead of lists drawn from the candidates."""
    lists_per_epoch: Annotated[Count, at_least(1)] = 256
    """Training lists per epoch; all: one per training query, or every list of the file once."""
    lists_per_step: Annotated[Whole, at_least(1), Parameter(alias="--batch-size")] = 8
    """Batch size: lists per optimizer step."""
    lr: Annotated[float, at_least(0), Parameter(alias="--lr")] = 2e-5
    """Adam's learning rate for the encoder or the feature network."""
    head_lr: Annotated[float, at_least(0)] = 1e-3
    """Adam's learning rate for the scoring layer on top of the encoder."""
    schedule: Literal["constant", "linear"] = "constant"
    """What the learning rates do after the warm-up: stay, or fall linearly, to 0 at the end of the last epoch."""
    warmup_ratio: Annotated[float, between(0, 1)] = 0.0
    """Share of all steps, to the maximum number of epochs, over which the learning rates rise linearly from 0."""
    weight_decay: Annotated[float, at_least(0)] = 0.0
    """AdamW's decay of weight matrices, relative to the learning rate; 0: Adam."""
    average: Annotated[float, between(0, 1)] = 0.0
    """Decay per step of an average of the weights that is validated, kept and tested, such as 0.99; 0: no average."""
    clip: Annotated[float, at_least(0)] = 0.0
    """Maximum gradient norm; 0: no clipping."""
    patience: Annotated[Whole, at_least(1)] = 20
    """Epochs without a better validation value before training stops."""
    validate_queries: Annotated[Count, at_least(1)] = "all"
    """Validation queries of a fold, drawn by --seed, that are scored after each epoch."""
    measure: str = "nDCG@20"
    """Validation measure to maximise, such as nDCG@20 or AP, or loss (minimised; logged negated)."""
    device: Annotated[str, Parameter(alias="--device", validator=DEVICE)] = "auto"
    """auto (a CUDA GPU if there is one, else the CPU), cpu, cuda, cuda:1 or mps."""
    precision: Literal["auto", "float32", "bf16", "fp16"] = "auto"
    """auto: bf16 on CUDA GPUs, and on CPUs that it makes faster; fp16 on Volta and Turing; elsewhere float32."""
    tf32: bool = True
    """Let float32 products on CUDA GPUs round their factors to TF32: faster from Ampere on."""
    deterministic: bool = False
    """Take torch's deterministic algorithms, for runs on a GPU that repeat; slower."""
    max_tokens_per_forward: Annotated[CountOrAuto, at_least(64)] = "auto"
    """Tokens per forward pass (a longer passage goes alone); auto: halved when memory runs out."""
    gradient_checkpointing: bool = False
    """Recompute activations: less memory per token, about 1/3 more time."""
    seed: Annotated[Whole, between(0, 2**63 - 1), Parameter(alias="--seed")] = 0
    """Random seed."""
    track: str = ""
    """Experiment tracker: tensorboard, wandb, mlflow, …, if installed, or a registered one; none if empty."""


@dataclass(frozen=True)
class PretrainingSettings:
    """Pre-training on pseudo-queries made from the documents, without queries or judgments."""

    steps: Annotated[Whole, at_least(0)] = 0
    """Maximum number of optimizer steps; 0: no pre-training."""
    lists_per_step: Annotated[Whole, at_least(1)] = 8
    """Lists (a pseudo-query and its documents) per optimizer step."""
    lr: Annotated[float, at_least(0)] = 5e-5
    """Adam's learning rate for the encoder."""
    head_lr: Annotated[float, at_least(0)] = 1e-3
    """Adam's learning rate for the scoring layer."""
    held_out: Annotated[Whole, at_least(1)] = 100
    """Documents (at most a fifth) whose pseudo-queries are held out for validation by MRR."""
    validate_every: Annotated[Whole, at_least(1)] = 50
    """Steps between two validations."""
