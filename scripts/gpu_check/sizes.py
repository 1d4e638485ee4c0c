"""How much is checked: on a GPU encoders as small as a test's and as large as BERT-base; on a CPU tiny ones alone."""

from dataclasses import dataclass
from typing import Any

TINY = "tiny"
TINY_SHAPE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


@dataclass(frozen=True)
class Sizes:
    """The work of all checks.

    encoders: name -> (lists, documents of a list) that it scores, and whose gradient is compared.
    doc_tokens, passage_tokens: where documents and passages are cut.
    long_list: documents of the long list, for the gradient in parts.
    speed: the encoder that is timed; speed_lists, speed_documents: lists (of four documents) and documents at most.
    seconds: of each timing, per contestant and round, 0 for as little as possible; rounds: how often they take turns.
    """

    encoders: dict[str, tuple[int, int]]
    doc_tokens: int
    passage_tokens: int
    long_list: int
    speed: str
    speed_lists: int
    speed_documents: int
    seconds: float
    rounds: int

    @property
    def is_full(self) -> bool:
        """Whether a large encoder is timed, so that speed has bounds."""
        return self.speed != TINY


@dataclass(frozen=True)
class Setting:
    """The device by its name (cpu, cuda, cuda:1, mps), and how much is checked."""

    device: str
    sizes: Sizes

    @property
    def kind(self) -> str:
        """The type of the device."""
        return self.device.partition(":")[0]


SMALL = Sizes({TINY: (2, 4)}, 120, 64, 150, TINY, 2, 8, 0.0, 1)
FULL = Sizes({TINY: (8, 4), "bert-base": (1, 4)}, 800, 512, 150, "bert-base", 128, 2048, 4.0, 3)


def shape_of(name: str) -> dict[str, Any]:
    """The vocabulary and the shape of an encoder of `Sizes`, as `make_encoder` takes them."""
    if name == TINY:
        return {"vocabulary": 1000, "initializer_range": 0.1, **TINY_SHAPE}
    from scripts.benchmarks.workload import SHAPES  # torch: the process that waits for a group needs none

    return dict(SHAPES[name])
