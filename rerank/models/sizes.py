"""The sizes that a model's config states, against the shapes of its weights, before anything is allocated."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import msgspec
from safetensors import SafetensorError, safe_open

from rerank.utils.errors import UserError
from rerank.utils.inside import open_regular, read_regular
from rerank.utils.json_files import read_json

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
PARTS = re.compile(r"(num|n)_.*(layers?|blocks|experts|groups)|n_layer|(en|de)coder_layers|layers|depth")  # modules
LABELS = re.compile(r"num_labels|n_labels")  # a key of a count of names, which are made one by one
NO_SIZE = re.compile(r"theta|base|token|seed|length")  # keys of numbers that allocate nothing
MOST_PARTS = 1000
"""The layers that a config may state although fewer have weights: they may be shared."""
MOST_LABELS = 2**16
"""The labels that a config may state although no tensor is that large: they may be unused."""
LARGEST = 2**24
"""Another size that a config may state although no tensor is that large, such as positions."""
SLACK = 2**24
"""Parameters that a model may have beside its weights, as a head that is to be trained."""

Shapes = Mapping[str, tuple[int, ...]]
"""The name of a tensor -> its shape."""


class Vocabulary(TypedDict, total=False):
    """The model of a tokenizer.json: token -> id, or a list of tokens."""

    vocab: dict[str, int] | list[object]


class AddedToken(TypedDict):
    """A token that tokenizer.json adds to the vocabulary."""

    id: int


class TokenizerFile(TypedDict, total=False):
    """What is read of a tokenizer.json."""

    model: Vocabulary
    added_tokens: list[AddedToken]


@dataclass(frozen=True)
class Sizes:
    """The largest dimension of a model's tensors, the numbers in their names, and how many numbers they have."""

    largest: int
    parts: int
    numbers: int

    @classmethod
    def of(cls, shapes: Shapes) -> "Sizes":
        places = [int(part) for name in shapes for part in name.split(".") if part.isdecimal() and len(part) < 10]
        largest = max((size for shape in shapes.values() for size in shape), default=0)
        return cls(largest, max(places, default=0) + 1, sum(map(math.prod, shapes.values())))

    def most(self, key: str) -> int:
        """The largest number that a config may state under a key."""
        if PARTS.fullmatch(key):
            return max(self.parts, MOST_PARTS)
        return max(self.largest, MOST_LABELS if LABELS.fullmatch(key) else LARGEST)


def check_sizes(folder: Path, name: str) -> None:
    """Raises UserError for a folder whose config states a size far from that of every tensor in its weights.

    The folder may have no config or no weights; then there is nothing to compare.
    """
    remedy = f"encoder {name}: download or save it again"
    _check_token_ids(folder, remedy)
    if not (folder / CONFIG).exists():
        return
    config = read_json(folder / CONFIG, dict[str, object], remedy)
    try:
        if shapes := weight_shapes(folder):
            sizes = Sizes.of(shapes)
            for key, stated in _sizes_in(config):
                if stated > sizes.most(key):
                    raise ValueError(f"{CONFIG} states {key} {stated}, but no tensor of its weights has such a size")
    except ValueError as error:
        raise UserError(f"{folder}: {error}; {remedy}") from error


def _check_token_ids(folder: Path, remedy: str) -> None:
    """Raises UserError for a token whose id is far beyond every vocabulary: the tokenizer counts up to it."""
    file = folder / TOKENIZER
    if not file.is_file():
        return
    try:
        facts = msgspec.json.decode(read_regular(file), type=TokenizerFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OSError):  # refused where it is opened
        return
    vocab = facts.get("model", {}).get("vocab", {})
    ids = [*(vocab.values() if isinstance(vocab, dict) else ()), *(one["id"] for one in facts.get("added_tokens", ()))]
    if ids and not 0 <= min(ids) <= max(ids) <= LARGEST:
        got = min(ids) if min(ids) < 0 else max(ids)
        raise UserError(f"{file}: expected ids of tokens from 0 to {LARGEST:,}, got {got}; {remedy}")


def check_parameters(folder: Path, name: str) -> None:
    """Raises UserError if a model has many more parameters than its weights; nothing is allocated for it."""
    import torch
    import transformers

    stated = read_json(folder / CONFIG, dict[str, object], "") if (folder / CONFIG).exists() else {}
    if "model_type" not in stated or "quantization_config" in stated or not (shapes := weight_shapes(folder)):
        return
    numbers = Sizes.of(shapes).numbers
    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            model = transformers.AutoModel.from_config(config, trust_remote_code=False)
    except Exception:  # what cannot be made is refused where it is opened, with a reason
        return
    if (count := sum(one.numel() for one in model.parameters())) > 2 * numbers + SLACK:
        raise UserError(
            f"encoder {name}: {CONFIG} states {count:,} parameters, its weights have {numbers:,}; download or save it "
            "again"
        )


def _sizes_in(config: object, key: str = "") -> Iterator[tuple[str, int]]:
    """The whole numbers of a config that are sizes, with their keys, at any depth."""
    if isinstance(config, dict):
        for name, value in config.items():
            yield from _sizes_in(value, name)
    elif isinstance(config, int) and not NO_SIZE.search(key):
        yield key, config


def weight_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the tensors in a folder's weights, from the headers of the files; {} if it has none.

    Raises ValueError for a file that is damaged, or whose header states more than the file has.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("model*.safetensors")):
        shapes |= _safetensors(file)
    if not shapes:
        for file in sorted(folder.glob("pytorch_model*.bin")):
            shapes |= _pickled(file)
    return shapes


def _safetensors(file: Path) -> dict[str, tuple[int, ...]]:
    """The shapes in a header, which safetensors compares with the size of the file."""
    open_regular(file).close()  # refuses a pipe, for whose writer safetensors would wait
    try:
        with safe_open(file, framework="numpy") as opened:
            return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{file.name}: expected a safetensors file: {error}") from error


def _pickled(file: Path) -> dict[str, tuple[int, ...]]:
    import torch

    found: object = {}
    for mapped in (True, False):  # the format of torch before 1.6 cannot be mapped
        try:
            found = torch.load(file, map_location="meta", weights_only=True, mmap=mapped)
            break
        except Exception:  # what torch does not load is refused where the model is opened, with a reason
            continue
    tensors = {name: tuple(value.shape) for name, value in found.items()} if isinstance(found, dict) else {}
    size = file.stat().st_size
    for name, shape in tensors.items():
        if math.prod(shape) > 2 * size:
            raise ValueError(f"{file.name}: states more of {name} than the file has")
    return tensors
